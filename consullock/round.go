package consullock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/lease"
)

// round is one renewal of a session and one look at the keys that it holds. All leases that are to be renewed while it is under
// way, or soon after, share it.
type round struct {
	began   lease.Reading
	done    chan struct{}
	stop    context.CancelFunc
	waiters int // guarded by Store.mu; without any it is given up
	err     error

	looking sync.WaitGroup // what follows is that of the look at the keys
	proven  []target
	seen    error
}

// beat is how long the proof of a round serves leases that have not had it yet. With it any number of leases that renew every
// third of the TTL cost at most 4.5 rounds per TTL, and none renews later than 0.6 TTL after its last proof.
func beat(ttl time.Duration) time.Duration { return ttl * 2 / 9 }

// renewed renews ses, or joins a renewal that is under way, and waits for its end.
func (s *Store) renewed(ctx context.Context, ses *session) error {
	r, err := s.join(ctx, ses)
	if err != nil {
		return err
	}
	defer s.leave(ses, r)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) join(ctx context.Context, ses *session) (*round, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	switch {
	case ses.dead:
		return nil, errSessionOver
	case ses.round != nil && now.Fast(ses.round.began) < ses.ttl/8: // an older one may hang
		ses.round.waiters++
		return ses.round, nil
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it serves others when this caller has gone
	r := &round{began: now, done: make(chan struct{}), stop: stop, waiters: 1}
	ses.round = r
	go s.run(ctx, ses, r)
	return r, nil
}

func (s *Store) leave(ses *session, r *round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.waiters--; r.waiters == 0 {
		r.stop()
		if ses.round == r {
			ses.round = nil
		}
	}
}

// run renews the session and looks at the keys at once, so that a slow network is waited for only once. After a failure that came
// quickly it does one after the other: a service that refuses is spared the second request.
func (s *Store) run(ctx context.Context, ses *session, r *round) {
	s.mu.Lock()
	spare := ses.spare
	s.mu.Unlock()
	look := func() { r.proven, r.seen = s.checkKeys(ctx, ses) }
	if !spare {
		r.looking.Go(look)
	}
	err := s.renewSession(ctx, ses, r.began)
	switch {
	case err != nil:
		r.stop() // what is seen now counts for nothing
	case spare:
		look()
	}
	r.looking.Wait()
	if err == nil {
		err = r.seen
		s.prove(r.proven, r.began)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses.round == r {
		ses.round = nil
	}
	now := s.clock()
	ses.spare = err != nil && now.Fast(r.began) < failedQuickly
	if ses.failure = err; err != nil {
		ses.failures++
		ses.failedAt = now
	}
	r.err = err
	close(r.done)
}

// failedQuickly is sooner than any request is given up.
const failedQuickly = 200 * time.Millisecond

// renewSession proves that the session lives. It says nothing of the keys.
func (s *Store) renewSession(ctx context.Context, ses *session, sent lease.Reading) error {
	entry, _, err := s.api.Session().Renew(ses.id, write(ctx))
	switch {
	case err != nil:
		return &roundError{sessions, err}
	case entry == nil: // the SDK's way to say that there is none
		return s.sessionGone(ctx, ses)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ses.sent = later(ses.sent, sent)
	return nil
}

// sessionGone decides by one consistent read whether a session has ended that a renewal did not find: a server that has just come to
// lead answers renewals before it has caught up.
func (s *Store) sessionGone(ctx context.Context, ses *session) error {
	entry, _, err := s.api.Session().Info(ses.id, consistent(ctx))
	switch {
	case err != nil:
		return &roundError{sessions, err}
	case entry != nil:
		return &lease.Error{
			Op: "renew", Store: s.place, Class: lease.ErrUnavailable, Err: errors.New("the server did not know the session yet"),
		}
	}
	s.died(ses)
	return errSessionOver
}

// roundError is why a round failed, and at what.
type roundError struct {
	kind kind
	err  error
}

func (e *roundError) Error() string { return e.err.Error() }
func (e *roundError) Unwrap() error { return e.err }

// target is a key that a round looks at.
type target struct {
	name  string
	hold  *hold  // nil: nobody here has a lease on it, and the session should not hold it
	index uint64 // of the hold
}

// checkKeys looks by one transaction for every maxOps keys whether the leases' keys are as they were locked, and frees those that
// the session holds without a lease. What it has proven counts if the session lives.
func (s *Store) checkKeys(ctx context.Context, ses *session) (proven []target, err error) {
	for some := range slices.Chunk(s.targets(ses), maxOps) {
		if proven, err = s.checkSome(ctx, ses, some, proven); err != nil {
			break
		}
	}
	return proven, err
}

// checkSome appends what it has proven.
func (s *Store) checkSome(ctx context.Context, ses *session, targets, proven []target) ([]target, error) {
	ops := make(api.TxnOps, 0, len(targets))
	for _, t := range targets {
		if t.hold != nil {
			ops = append(ops, opUnchanged(s.lockPath(t.name), t.index))
		} else {
			ops = append(ops, opCheckSession(s.lockPath(t.name), ses.id))
		}
	}
	_, refused, err := s.reads(ctx, ops)
	if err != nil {
		return proven, &roundError{reading, err}
	}
	if says(refused, denials...) {
		return proven, &roundError{reading, &statusError{http.StatusForbidden, scrub(refused[0].What)}}
	}
	for i, t := range targets {
		passes := !concerns(refused, i)
		switch {
		case t.hold != nil && passes:
			proven = append(proven, t)
		case t.hold != nil:
			err = errors.Join(err, s.confirm(ctx, t.hold))
		case passes:
			_ = s.freeStray(ctx, ses, t.name) // the next round tries again
		default:
			s.settled(ses, t.name)
		}
	}
	return proven, err
}

// targets are the keys to look at. Those that nobody here has a lease on come last.
func (s *Store) targets(ses *session) []target {
	strays, _ := s.straysOf(ses)
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []target
	for name, h := range s.holds {
		if h.ses == ses && h.granted && h.lost == nil && h.liveLocked(s.clock()) {
			all = append(all, target{name, h, h.index})
		}
	}
	for _, name := range strays {
		if h := s.holds[name]; h == nil || h.ses != ses || !h.leaves || s.clock().Fast(h.given) >= h.TTL {
			all = append(all, target{name: name})
		}
	}
	return all
}

// prove extends the trust in leases to what a round that was sent then vouches for.
func (s *Store) prove(proven []target, sent lease.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range proven {
		if h := t.hold; h.index == t.index && h.lost == nil {
			h.proved = later(h.proved, sent)
			h.proofs++
		}
	}
}

// confirm decides by one consistent read whether a lease is lost whose key did not look as it should: an answer may be older than
// the grant.
func (s *Store) confirm(ctx context.Context, h *hold) error {
	rec, err := s.look(ctx, "renew", h.Name)
	if err != nil {
		return &roundError{reading, err}
	}
	if s.holdsIt(h, rec) {
		return nil // this round proves nothing; the next will
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.loseLocked(rec.whyLost(), !rec.held() || rec.lock.Session != h.ses.id)
	return nil
}

func (s *Store) holdsIt(h *hold, rec record) bool {
	return rec.held() && rec.lock.Session == h.ses.id && rec.lock.ModifyIndex == h.index
}

// straysOf are the names of the locks that ses may hold although nobody here has a lease on them: a request that landed after its
// caller had given up, a release that was not answered, a lease that was lost here and not there. living tells whether it
// also has leases.
func (s *Store) straysOf(ses *session) (strays []string, living bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for name, h := range s.holds {
		switch {
		case h.ses != ses:
		case h.liveLocked(now):
			living = true
		case h.busy == 0:
			strays = append(strays, name)
		}
	}
	for name := range ses.doubts {
		if h := s.holds[name]; h == nil || h.ses != ses {
			strays = append(strays, name)
		}
	}
	return strays, living
}

// settled forgets a lock that the session does not hold, unless a request for it may still be under way.
func (s *Store) settled(ses *session, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holds[name]; h != nil && h.ses == ses && h.busy == 0 && !h.liveLocked(s.clock()) {
		h.loseLocked(errors.New("its key is not locked by its session any more"), true)
		s.dropLocked(h, false)
	}
	if d, listed := ses.doubts[name]; listed && (!d.onTheWay || s.clock().Slow(d.since) > doubtful) {
		delete(ses.doubts, name)
	}
}

// freeStray unlocks a key that ses holds without a lease, on the condition that it is as it was read.
func (s *Store) freeStray(ctx context.Context, ses *session, name string) error {
	rec, err := s.look(ctx, "release", name)
	if err != nil {
		return &roundError{reading, err}
	}
	if !rec.held() || rec.lock.Session != ses.id {
		s.settled(ses, name)
		return nil
	}
	if s.wanted(name, ses) {
		return nil // an acquire has begun meanwhile, which takes it over
	}
	freed := lockNote{Attempt: rec.note.Attempt, Freed: true, Swept: true, Token: rec.token()}
	_, refused, err := s.txn(ctx, api.TxnOps{
		opUnchanged(s.lockPath(name), rec.lock.ModifyIndex), opUnlock(s.lockPath(name), ses.id, encode(freed)),
	})
	switch {
	case err != nil:
		return &roundError{writing, err}
	case len(refused) > 0 && !concerns(refused, 0):
		return fmt.Errorf("free what the session holds without a lease: %s", scrub(refused[0].What))
	case len(refused) == 0:
		s.settled(ses, name)
	}
	return nil
}

// wanted tells whether somebody here has or asks for a lease on name by ses.
func (s *Store) wanted(name string, ses *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holds[name]
	return h != nil && h.ses == ses && (h.busy > 0 || h.liveLocked(s.clock()))
}

// later is the later of two readings of clocks of which one may stand still.
func later(a, b lease.Reading) lease.Reading {
	if a.IsZero() || b.Fast(a) > 0 {
		return b
	}
	return a
}
