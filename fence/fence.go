// Package fence is the storage side of a lease: what makes the write of a paused holder fail.
//
// A lease alone cannot stop a holder that was paused past its end and writes when it wakes. The storage can, if it keeps the
// highest fencing token it has seen beside the data and refuses a lower one in the same atomic step as the write. A Guard is
// such a storage. Stores bring Guards for their own service; a Guard of your own passes leasetest.TestGuard.
//
// Not promised: a Guard orders writes by token, it does not make a write happen once. Until the next holder has written, the
// storage has not seen the higher token, and a late write of the former holder still passes; where that must not be, check
// the lock itself in the same transaction as the write.
package fence

import (
	"context"
	"fmt"

	"github.com/cloudlease/cloudlease/lease"
)

// Guard is storage that refuses stale writes. Its specification is executable: leasetest.TestGuard. Methods block for the
// request they make, bounded by ctx, and are safe for concurrent use.
type Guard interface {
	// Put stores value under key if token is higher than any token the key has seen, or equal to the highest and
	// given by the same holder. Otherwise it returns a *StaleError and changes nothing. Check and write are one atomic
	// step. An error of class lease.ErrInDoubt means that the write may have been done; Put again with the same token.
	Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error

	// Get returns what is stored under key, strongly consistent; a missing key has a zero Token.
	Get(ctx context.Context, key string) (Entry, error)
}

// Entry is a guarded value.
type Entry struct {
	Value  []byte
	Token  lease.Token // of the write that stored it: the highest seen
	Holder string
}

// Put writes through g in the name of l. It does not ask whether l is still valid: the storage decides.
func Put(ctx context.Context, g Guard, l *lease.Lease, key string, value []byte) error {
	return g.Put(ctx, key, value, l.Token(), l.Holder())
}

// StaleError is a refused write. It matches lease.ErrStale.
type StaleError struct {
	Key    string
	Token  lease.Token // of the refused write
	Seen   lease.Token // the highest the storage has seen; 0 where it does not say
	Holder string      // who wrote with Seen; empty where the storage does not say
}

func (e *StaleError) Error() string {
	s := fmt.Sprintf("write of %q with token %d refused", e.Key, e.Token)
	switch {
	case e.Seen == e.Token && e.Holder != "":
		s += fmt.Sprintf(": %s wrote with the same token", e.Holder)
	case e.Seen != 0:
		s += fmt.Sprintf(": token %d has been seen", e.Seen)
		if e.Holder != "" {
			s += " from " + e.Holder
		}
	}
	return s + "; the lease of this writer is over, discard its work"
}

// Is makes errors.Is(err, lease.ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == lease.ErrStale }

// Admits tells whether a storage that holds have lets a write with token and holder pass: the rule that every Guard keeps.
func Admits(have Entry, token lease.Token, holder string) bool {
	return token > have.Token || token == have.Token && holder == have.Holder
}

// Check tells what is wrong with the arguments of a Put, before any request.
func Check(key string, token lease.Token, holder string) error {
	switch {
	case key == "":
		return lease.Invalid("put", key, "the key is empty")
	case token == 0 || token > lease.MaxToken:
		return lease.Invalid("put", key, "token %d is not a fencing token (1 to %d)", token, lease.MaxToken)
	case holder == "":
		return lease.Invalid("put", key, "the holder is empty")
	}
	return nil
}
