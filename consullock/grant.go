package consullock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/lease"
)

// granted makes the grant of a transaction that was done. What was read in it is the lock as it was before.
func (a attempt) granted(ctx context.Context, ses *session, sent lease.Reading, results []*api.KVPair) (lease.Grant, error) {
	before := record{name: a.Name}
	var locked, granted *api.KVPair
	for _, p := range results {
		part, ours := strings.CutPrefix(p.Key, a.folder)
		if !ours {
			part, ours = strings.CutPrefix(p.Key, a.floor)
		}
		switch {
		case !ours:
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
	if a.overtaken(&before) {
		return lease.Grant{}, a.lost("acquire", a.Name, errors.New("an earlier try was granted and taken away"))
	}
	if why, hint := a.unfit(&before, token); why != nil {
		return lease.Grant{}, a.undo(ctx, ses, locked.ModifyIndex, &before, why, hint)
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
	h.proof = proofOf(ses, h.index)
	h.kept, h.keptIndex = before.keep, index(before.kept)
	return lease.Grant{
		Request: a.Request, Token: token, Proof: h.proof, Value: before.keep.Value, Marks: m, Sent: sent, Trust: a.TTL,
	}, nil
}

// overtaken tells whether what an earlier try of the attempt was granted has been taken away since, by an operator. Its token is
// over, and what its hold knows of it as well; the attempt begins anew.
func (a attempt) overtaken(before *record) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.hold.lost != nil || before.note.Attempt == a.Attempt && before.note.Freed
	a.hold.doubt = a.hold.doubt || taken // the session has the key until the next try, or a round, has seen to it
	return taken
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

// undo gives an unfit grant back. Its occurrence, if it is for one, was not started.
func (a attempt) undo(ctx context.Context, ses *session, locked uint64, before *record, why error, hint string) error {
	path := a.lockPath(a.Name)
	ops := api.TxnOps{
		opUnchanged(path, locked), opUnlock(path, ses.id, encode(lockNote{Attempt: a.Attempt, Freed: true, Token: before.note.Token})),
	}
	if a.Mark != nil && before.fault == nil {
		kept := before.keep
		if before.current() && before.note.Attempt == a.Attempt { // its first try wrote it
			kept.Started = before.by.Before
		}
		ops = append(ops, opUnchanged(a.keptPath(a.Name), index(before.kept)), opSet(a.keptPath(a.Name), encode(kept)))
	}
	_, refused, err := a.txn(ctx, ops)
	if err != nil || len(refused) > 0 {
		a.mu.Lock()
		a.hold.doubt = true
		a.mu.Unlock()
		why = fmt.Errorf("%w; it could not be given back at once", why)
	}
	return &lease.Error{Op: "acquire", Store: a.place, Name: a.Name, Class: lease.ErrMisconfigured, Err: why, Hint: hint}
}
