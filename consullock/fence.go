package consullock

import (
	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// Fence puts a condition on a lease into a transaction of your own, on keys of the same datacenter: the transaction is done only
// while the lock has this very grant. It needs no record of tokens, and stops a late writer before the next holder has written
// anything.
//
//	ops := append(f.Ops(), f.Set("report/2026-03", sum))
//	done, resp, _, err := client.Txn().Txn(ops, nil)
//	if err == nil && !done {
//		err = f.Refused(resp.Errors)
//	}
type Fence struct {
	name    string
	path    string
	token   lease.Token
	session string
	index   uint64
}

// Fence is the fence of a lease of this store. It stays the same for as long as the lease is held: renewals and Save do not move
// the index of the locked key.
func (s *Store) Fence(l *lease.Lease) (Fence, error) {
	g := l.Grant()
	session, index, err := readProof(g)
	return Fence{name: g.Name, path: s.lockPath(g.Name), token: g.Token, session: session, index: index}, err
}

// Ops are the two operations that go before those of the transaction: the locked key has the index of this grant, and is locked by
// its session. The session alone would let an older lease of the same client pass.
func (f Fence) Ops() api.TxnOps {
	return api.TxnOps{opUnchanged(f.path, f.index), opCheckSession(f.path, f.session)}
}

// Set is an operation that writes a key and keeps the token with it, as its flags, for those who read it.
func (f Fence) Set(key string, value []byte) *api.TxnOp {
	op := opSet(key, value)
	op.KV.Flags = uint64(f.token)
	return op
}

// Refused is a *fence.StaleError if the reasons for which a transaction that begins with Ops was not done are the fence's, and nil
// if they are others.
func (f Fence) Refused(reasons api.TxnErrors) error {
	if concerns(reasons, 0, 1) && !says(reasons, denials...) {
		return &fence.StaleError{Key: f.name, Token: f.token}
	}
	return nil
}
