package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/cloudlease/cloudlease/lease"
)

// join takes a worker lease and enters the roster. Worker leases have numbers for names, so that workers who come and go leave
// no names behind.
func (w *Worker) join(ctx context.Context, fn Func) (*session, error) {
	r, _, err := w.loadRoster(ctx)
	if err != nil {
		return nil, err
	}
	l, slot, err := w.takeSlot(ctx, r)
	if err != nil {
		return nil, err
	}
	s := newSession(w, l, slot, fn)
	me := member{slot: slot, token: l.Token(), limit: w.opt.MaxShards, name: nameOf(w.c.Options().Holder)}
	held, cancel := l.Context(ctx)
	defer cancel()
	sent := w.c.Clock()()
	s.roster, err = w.changeRoster(held, func(r roster) (roster, bool) {
		sent = w.c.Clock()() // the swap that passes is sent later than this
		return r.with(me), true
	})
	if err != nil {
		if lost := l.Err(); lost != nil {
			err = errors.Join(lost, err)
		}
		return nil, errors.Join(err, s.leave(ctx))
	}
	s.bell = s.roster.bell
	s.refresh(sent)
	w.tell(Joined, w.workerKey(slot), l.Token(), 0, nil)
	w.warnOfNamesake(ctx, s.roster, slot)
	return s, nil
}

// takeSlot takes a free worker lease. Those that start at the same time try different ones.
func (w *Worker) takeSlot(ctx context.Context, r roster) (*lease.Lease, int, error) {
	span := 2*len(r.members) + 8
	for {
		slot := rand.IntN(min(span, maxSlot+1)) //nolint:gosec // spreads load, keeps no secret
		if _, taken := r.index(slot); taken {
			span++
			if len(r.members) > maxSlot {
				return nil, 0, w.fail("join", w.name, lease.ErrMisconfigured, fmt.Errorf("the group has %d workers", len(r.members)))
			}
			continue
		}
		l, err := w.c.TryAcquire(ctx, w.workerKey(slot))
		if !errors.Is(err, lease.ErrHeld) {
			return l, slot, err
		}
		span += 8
		if !sleep(ctx, jitter(crowd, 0.9)) {
			return nil, 0, w.fail("join", w.name, lease.ErrUnavailable, lease.Cause(ctx))
		}
	}
}

// warnOfNamesake tells of another worker that runs under this one's name: both work, each under an id of its own, but whoever
// reads the name in a log or a list cannot tell them apart.
func (w *Worker) warnOfNamesake(ctx context.Context, r roster, slot int) {
	mine := nameOf(w.c.Options().Holder)
	for _, m := range r.members {
		if m.name != mine || m.slot == slot {
			continue
		}
		info, err := w.c.Inspect(ctx, w.workerKey(m.slot))
		if err != nil || info.Holder == w.c.Holder() || !w.c.Namesake(info.Holder) {
			continue
		}
		w.tell(lease.Namesake, w.workerKey(m.slot), info.Token, 0, &lease.HeldError{Name: w.workerKey(m.slot), Holder: info.Holder, Token: info.Token})
	}
}

// leave takes the worker out of the roster and gives its lease back. Whatever it still owned is free for all then.
func (s *session) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*s.c.Options().CallTimeout)
	defer cancel()
	held, end := s.lease.Context(ctx)
	defer end()
	var errs []error
	if s.lease.Err() == nil { // a lost lease is taken out by whoever takes it
		_, err := s.changeRoster(held, func(r roster) (roster, bool) {
			return r.without(s.slot, s.lease.Token()), r.has(s.slot, s.lease.Token())
		})
		errs = append(errs, err)
	}
	if err := s.lease.Release(ctx); !errors.Is(err, lease.ErrLost) {
		errs = append(errs, err)
	}
	s.tell(Left, s.workerKey(s.slot), s.lease.Token(), 0, errors.Join(errs...))
	return nil // the lease ends by itself, and is taken out of the roster then
}

// watch looks at the workers that follow this one in the roster, up to the first that lives, and takes the leases of the dead.
// So every worker is watched by one other, and a row of dead ones by the living one before them.
func (s *session) watch(ctx context.Context, r roster) (buried bool, err error) {
	for _, m := range r.after(s.slot) {
		info, err := s.c.Inspect(ctx, s.workerKey(m.slot))
		if err != nil {
			return buried, err
		}
		if info.State == lease.Held { // by m or by its successor; a store's number may run ahead of the holder's token
			return buried, nil
		}
		done, err := s.bury(ctx, m)
		if err != nil || !done {
			return buried, err
		}
		buried = true
	}
	return buried, nil
}

// bury takes m's lease and then takes m out of the roster: its lease first, its shards after, so that m cannot have renewed it in
// between.
func (s *session) bury(ctx context.Context, m member) (bool, error) {
	l, err := s.c.TryAcquire(ctx, s.workerKey(m.slot))
	if errors.Is(err, lease.ErrHeld) {
		return false, nil // it lives, or another worker was faster
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = l.Release(ctx) }() // its failure is told to the observer
	_, err = s.changeRoster(ctx, func(r roster) (roster, bool) {
		return r.without(m.slot, m.token), r.has(m.slot, m.token)
	})
	if err != nil {
		return false, err
	}
	s.tell(Buried, s.workerKey(m.slot), m.token, 0, nil)
	return true, nil
}
