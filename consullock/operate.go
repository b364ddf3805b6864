package consullock

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/lease"
)

// Break implements lease.Breaker: one read and one transaction, which unlocks the key in the name of the session that has it and
// keeps the reason. The session and its other locks are left alone, and no lock-delay follows: the lock is free at once, unless
// a lock-delay goes on already. The holder learns it within two seconds if it is watched (Watch).
func (s *Store) Break(ctx context.Context, name string, token lease.Token, r lease.Reason) error {
	const op = "break"
	switch {
	case r.By == "":
		return lease.Invalid(op, name, "it is not said who breaks the lock")
	case len(r.By)+len(r.Why) > lease.MaxValue:
		return lease.Invalid(op, name, "who and why have more than %d bytes", lease.MaxValue)
	}
	rec, err := s.look(ctx, op, name)
	if err != nil {
		return err
	}
	if rec.fault != nil {
		return s.foreign(op, name, rec.fault)
	}
	if why := whyNotBroken(&rec, token); why != nil {
		return s.notBroken(name, why)
	}
	kept := rec.keep
	kept.Broken = &brokenNote{By: r.By, Why: r.Why, Token: rec.token(), At: s.now().UnixMilli()}
	path, freed := s.lockPath(name), encode(lockNote{Attempt: rec.note.Attempt, Freed: true, Token: rec.token()})
	unlock := opUnlock(path, rec.lock.Session, freed)
	if rec.lock.Session == "" {
		unlock = opSet(path, freed)
	}
	_, refused, err := s.txn(ctx, api.TxnOps{
		opUnchanged(path, rec.lock.ModifyIndex), unlock,
		opUnchanged(s.keptPath(name), index(rec.kept)), opSet(s.keptPath(name), encode(kept)),
	})
	switch {
	case err != nil:
		return s.fail(ctx, op, name, writing, err)
	case says(refused, denials...):
		return s.refusal(op, name, refused)
	case len(refused) > 0:
		return s.notBroken(name, errors.New("it changed in between"))
	}
	return nil
}

func whyNotBroken(rec *record, token lease.Token) error {
	switch {
	case rec.lock == nil:
		return errors.New("no lock of this name was ever taken")
	case !rec.held() && !rec.dead():
		return fmt.Errorf("it is free; its last token was %d", rec.token())
	case rec.token() != token:
		return fmt.Errorf("it is held with token %d now, not with %d: %s", rec.token(), token, rec.holder())
	}
	return nil
}

func (s *Store) notBroken(name string, why error) error {
	return &lease.Error{
		Op: "break", Store: s.place, Name: name, Class: lease.ErrConflict, Err: why,
		Hint: "nothing was changed; inspect the lock again",
	}
}

// RaiseFloor implements lease.Floorer: one read and one transaction. The floor is a key of its own, which is added to the index of
// every later grant.
func (s *Store) RaiseFloor(ctx context.Context, name string, token lease.Token) error {
	const op = "raise the floor of"
	if err := lease.CheckName(name); err != nil {
		return lease.Invalid(op, name, "%w", err)
	}
	if token == 0 || token >= lease.MaxToken {
		return lease.Invalid(op, name, "the floor %d is not from 1 to %d", token, lease.MaxToken-1)
	}
	for range maxSteps {
		rec, err := s.look(ctx, op, name)
		switch {
		case err != nil:
			return err
		case rec.held():
			return rec.heldError()
		}
		newest := max(index(rec.lock), index(rec.grant), index(rec.kept), index(rec.floor)) // the servers' index is not below it
		if lease.Token(newest+rec.add.Add) >= token && rec.token() <= lease.Token(newest+rec.add.Add) {
			return nil
		}
		floor := floorNote{Add: max(rec.add.Add, uint64(max(token, rec.token()))-min(newest, uint64(token))), Before: rec.add.Add}
		_, refused, err := s.txn(ctx, api.TxnOps{
			opUnchanged(s.lockPath(name), index(rec.lock)), opUnchanged(s.floorPath(name), index(rec.floor)),
			opSet(s.floorPath(name), encode(floor)),
		})
		switch {
		case err != nil:
			return s.fail(ctx, op, name, writing, err)
		case len(refused) == 0:
			return nil
		case !says(refused, changes...):
			return s.refusal(op, name, refused)
		}
	}
	return &lease.Error{
		Op: op, Store: s.place, Name: name, Class: lease.ErrUnavailable, Hint: "the lock is busy; try again while nobody uses it",
	}
}
