package consullock

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/lease"
)

// granted makes the grant of a transaction that was done. What was read in it is the lock as it was before.
func (a attempt) granted(ctx context.Context, ses *session, sent lease.Reading, results []*api.KVPair) (lease.Grant, error) {
	before := record{name: a.Name}
	var locked, granted *api.KVPair
	for _, p := range results {
		_, part, err := a.nameOf(p.Key)
		switch {
		case err != nil:
		case part == lockKey && p.Value == nil:
			locked = p
		case part == grantKey && p.Value == nil:
			granted = p
		case part == keptKey && p.Value == nil:
			before.kept = p
		default:
			before.take(part, p)
		}
	}
	if locked == nil || granted == nil { // not from a Consul; the hold stays in doubt
		return lease.Grant{}, a.fail(ctx, "acquire", a.Name, writing, errors.New("the answer does not tell the index of the lock"))
	}
	token := lease.Token(granted.ModifyIndex + before.addAt(granted.ModifyIndex))
	if why, hint := a.unfit(&before, token); why != nil {
		return lease.Grant{}, a.undo(ctx, ses, locked.ModifyIndex, before.note.Token, why, hint)
	}
	m := lease.Marks{Started: before.keep.Started, Finished: before.keep.Finished}
	if a.Mark != nil {
		m.Running, m.Started = a.Mark.Occurrence, max(m.Started, a.Mark.Occurrence)
		before.keep.Started = m.Started
	}
	now := a.clock()
	if now.Fast(a.Since) > now.Fast(sent) {
		sent = a.Since
	}
	a.won(a.Name)
	a.highest(a.Name, token)
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.hold
	h.given = later(h.given, sent)
	h.granted, h.token, h.index, h.failed = true, token, locked.ModifyIndex, ses.failures
	h.kept, h.keptIndex = before.keep, index(before.kept)
	return lease.Grant{
		Request: a.Request, Token: token, Proof: proofOf(ses, h.index), Value: before.keep.Value, Marks: m, Sent: sent, Trust: a.TTL,
	}, nil
}

// unfit says why a grant with this token must not be handed out.
func (a attempt) unfit(before *record, token lease.Token) (why error, hint string) {
	last := max(before.token(), a.highest(a.Name, 0))
	retry := before.note.Attempt == a.Attempt && !before.note.Freed
	switch {
	case before.fault != nil:
		return before.fault, "delete the keys of this lock while nobody holds it, or use a prefix for locks alone"
	case a.dc != "" && before.by.Datacenter != "" && before.by.Datacenter != a.dc:
		return fmt.Errorf("its keys come from the datacenter %s, and this is %s", before.by.Datacenter, a.dc),
			"a lock is per datacenter: exclude the prefix from replication and delete its copies"
	case token > lease.MaxToken:
		return fmt.Errorf("the tokens are used up: the last is %d", lease.MaxToken), "use another lock name"
	case token <= last && !retry:
		return fmt.Errorf("its next token would be %d, and %d was given out before: the servers' index fell behind, as after the loss of their data or an import into another cluster",
			token, last), fmt.Sprintf("raise its floor to %d or higher (RaiseFloor) while nobody holds it", last)
	}
	return nil, ""
}

// undo gives an unfit grant back.
func (a attempt) undo(ctx context.Context, ses *session, index uint64, last lease.Token, why error, hint string) error {
	path := a.lockPath(a.Name)
	_, refused, err := a.txn(ctx, api.TxnOps{
		opUnchanged(path, index), opUnlock(path, ses.id, encode(lockNote{Attempt: a.Attempt, Freed: true, Token: last})),
	})
	if err != nil || len(refused) > 0 {
		a.mu.Lock()
		a.hold.doubt = true
		a.mu.Unlock()
		why = fmt.Errorf("%w; it could not be given back at once", why)
	}
	return &lease.Error{Op: "acquire", Store: a.place, Name: a.Name, Class: lease.ErrMisconfigured, Err: why, Hint: hint}
}
