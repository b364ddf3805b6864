package consullock

import (
	"context"
	"errors"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// Release implements lease.Store: one transaction, which unlocks the key on the condition that it is as it was locked, and leaves
// what f says. The session goes on for the other locks. A lock whose session has ended and that nobody has taken since is
// released as well.
func (s *Store) Release(ctx context.Context, g lease.Grant, f lease.Final) error {
	const op = "release"
	if err := storeerr.Sendable(ctx); err != nil {
		return s.fail(ctx, op, g.Name, writing, err)
	}
	s.unwanted(g.Request, f.Value != nil || f.Marks != nil)
	if g.Token == 0 {
		return s.releaseUnknown(ctx, g.Request)
	}
	session, locked, err := readProof(g)
	if err != nil {
		return err
	}
	rel := release{Store: s, g: g, f: f, session: session, index: locked}
	if !s.knows(g) {
		if again, err := rel.judge(ctx); !again {
			return err
		}
	}
	for range maxSteps {
		refused, err := rel.send(ctx)
		switch {
		case err != nil:
			return err
		case len(refused) == 0:
			s.released(g.Request)
			return nil
		case says(refused, denials...):
			return s.refusal(op, g.Name, refused)
		}
		if again, err := rel.judge(ctx); !again {
			return err
		}
	}
	return &lease.Error{
		Op: op, Store: s.place, Name: g.Name, Class: lease.ErrUnavailable, Err: errors.New("its keys changed between all tries"),
	}
}

// knows tells whether g is in this store's table, as it was given.
func (s *Store) knows(g lease.Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holdOfLocked(g.Request)
	return h != nil && h.isOf(g)
}

// release is one Release.
type release struct {
	*Store
	g       lease.Grant
	f       lease.Final
	session string // that has the key locked; empty: it has ended, and the key is as it left it
	index   uint64 // of the key
}

func (r *release) leaves() bool { return r.f.Value != nil || r.f.Marks != nil }

func (r *release) send(ctx context.Context) (api.TxnErrors, error) {
	const op = "release"
	path := r.lockPath(r.g.Name)
	freed := encode(lockNote{Attempt: r.g.Attempt, Freed: true, Token: r.g.Token})
	ops := api.TxnOps{opUnchanged(path, r.index), opUnlock(path, r.session, freed)}
	if r.session == "" {
		ops[1] = opSet(path, freed)
	}
	if r.leaves() {
		kept, index, err := r.keptOf(ctx, op, r.g)
		if err != nil {
			return nil, err
		}
		if r.f.Value != nil {
			kept.Value = r.f.Value
		}
		if m := r.f.Marks; m != nil {
			kept.Started, kept.Finished = m.Started, m.Finished
		}
		ops = append(ops, opUnchanged(r.keptPath(r.g.Name), index), opSet(r.keptPath(r.g.Name), encode(kept)))
	}
	_, refused, err := r.txn(ctx, ops)
	if err != nil {
		return nil, r.fail(ctx, op, r.g.Name, writing, err)
	}
	return refused, nil
}

// judge says what a refused release means: an earlier try was stored; the key, or what is kept with it, was written since, and the
// lock is still this grant's, so that it is tried again; or it is not the lock's grant any more.
func (r *release) judge(ctx context.Context) (again bool, err error) {
	rec, err := r.look(ctx, "release", r.g.Name)
	if err != nil {
		return false, err
	}
	_, broken := rec.brokenBy(r.g.Token)
	ours := rec.note.Attempt == r.g.Attempt && rec.token() == r.g.Token && !broken
	session, _, _ := readProof(r.g)
	r.keepsUnknown(r.g) // what is kept is read again if this goes on
	switch {
	case rec.lock != nil && ours && rec.note.Swept && r.leaves() && !rec.held():
		r.session, r.index = "", rec.lock.ModifyIndex
		return true, nil
	case rec.lock != nil && ours && rec.note.Freed:
		r.released(r.g.Request)
		return false, nil
	case rec.held() && rec.lock.Session == session && (ours || rec.note.Attempt == "") && !r.another(r.g.Request):
		r.session, r.index = session, rec.lock.ModifyIndex
		return true, nil
	case rec.dead() && ours:
		r.session, r.index = "", rec.lock.ModifyIndex
		return true, nil
	case r.f.Marks != nil && r.f.Marks.Finished > r.g.Marks.Finished && rec.keep.Finished >= r.f.Marks.Finished:
		r.released(r.g.Request)
		return false, nil // it was stored, and the lock has been taken since
	}
	if rec.held() && rec.lock.Session == session {
		r.overwritten(r.g.Request)
	}
	r.released(r.g.Request)
	return false, r.lost("release", r.g.Name, rec.whyLost())
}

// another tells whether this store has given the name to another attempt since.
func (s *Store) another(r lease.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holds[r.Name]
	return h != nil && h.Attempt != r.Attempt && h.liveLocked(s.clock())
}

// unwanted takes note that the holder does not want its lock any more, whatever becomes of the release, which may leave something.
func (s *Store) unwanted(r lease.Request, leaves bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holdOfLocked(r); h != nil {
		h.asked, h.leaves = true, h.leaves || leaves
	}
}

func (s *Store) released(r lease.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holdOfLocked(r); h != nil {
		h.loseLocked(errors.New("it was released"), true)
		s.dropLocked(h, false)
	}
}

// overwritten takes note that the session has the key of a lease that is over: another request for it came late.
func (s *Store) overwritten(r lease.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holdOfLocked(r); h != nil && h.ses != nil && !h.ses.dead {
		s.suspectLocked(h.ses, r.Name, false)
	}
}

// releaseUnknown frees what an attempt was granted whose outcome is not known. A request of it that is still on its way is freed
// by the session's next round, or ends with the session. If this client has the lock again by now, and the late request has
// written over it, the key is left alone: that lease is trusted until its next round has seen it.
func (s *Store) releaseUnknown(ctx context.Context, r lease.Request) error {
	const op = "release"
	for range maxSteps {
		rec, err := s.look(ctx, op, r.Name)
		if err != nil {
			return err
		}
		if !rec.held() || rec.note.Attempt != r.Attempt || s.another(r) {
			s.released(r)
			return s.lost(op, r.Name, errors.New("there was nothing to free"))
		}
		path := s.lockPath(r.Name)
		ops := api.TxnOps{
			opUnchanged(path, rec.lock.ModifyIndex),
			opUnlock(path, rec.lock.Session, encode(lockNote{Attempt: r.Attempt, Freed: true, Token: rec.token()})),
		}
		if rec.current() && rec.by.Running != 0 && rec.fault == nil { // nothing was started
			kept := rec.keep
			kept.Started = rec.by.Before
			ops = append(ops, opUnchanged(s.keptPath(r.Name), index(rec.kept)), opSet(s.keptPath(r.Name), encode(kept)))
		}
		_, refused, err := s.txn(ctx, ops)
		switch {
		case err != nil:
			return s.fail(ctx, op, r.Name, writing, err)
		case len(refused) == 0:
			s.released(r)
			return nil
		case !says(refused, changes...):
			return s.refusal(op, r.Name, refused)
		}
	}
	return &lease.Error{
		Op: op, Store: s.place, Name: r.Name, Class: lease.ErrUnavailable, Err: errors.New("its keys changed between all tries"),
	}
}
