package consullock

import (
	"context"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

const (
	// waitTime bounds one blocking query at the service, which adds a sixteenth of it; waitCut is when it is given up here.
	waitTime = 55 * time.Second
	waitCut  = 62 * time.Second

	// A query that knows the key's index and comes back sooner than prompt without news is no better than polling.
	prompt = 500 * time.Millisecond

	// A waiter that was woken and did not get the lock has met others. It polls for a while, so that they do not all come back
	// with every release.
	polls = 10

	// The pauses between tries: of one who polls, who has just met others (and has asked twice), and in a lock-delay.
	pollPause      = time.Second
	contendedPause = 1450 * time.Millisecond
	delayPause     = 1250 * time.Millisecond
)

// waitState is what a store knows of the waits for one lock.
type waitState struct {
	woke  lease.Reading // when a waiter was last told that the lock looks free
	polls int           // how many waits are to poll
	index uint64        // of the last answer

	token lease.Token // the highest that this store was given

	delayed   lease.Reading // when the lock-delay was first seen; zero: there is none
	delayedAt lease.Reading // and when last
}

// maxKept bounds how many locks' waits are remembered. To forget one costs a request.
const maxKept = 4096

func (s *Store) waitLocked(name string, change func(*waitState)) waitState {
	w, known := s.waits[name]
	if !known && len(s.waits) >= maxKept {
		for other := range s.waits {
			delete(s.waits, other)
			break
		}
	}
	change(&w)
	s.waits[name] = w
	return w
}

// Wait implements lease.Waiter: a blocking query on the lock's key, which answers when it is released, and one read before it if
// this store has not seen the key yet. While a lock-delay goes on, whose end Consul does not tell, and while others take the
// lock sooner, it polls once a second.
func (s *Store) Wait(ctx context.Context, h *lease.HeldError) error {
	pause, ask := s.patience(h.Name)
	if pause > 0 {
		sleep(ctx, pause)
	}
	if !ask {
		return nil
	}
	known := pause > 0 // it met others
	for {
		began := s.clock()
		free, err := s.ask(ctx, h.Name)
		switch {
		case ctx.Err() != nil:
			return s.fail(ctx, "wait for", h.Name, reading, ctx.Err())
		case err != nil:
			return err
		case free:
			s.wake(h.Name)
			return nil
		}
		if known && s.clock().Fast(began) < prompt { // others are quicker, or nothing blocks
			s.contended(h.Name)
			sleep(ctx, lease.Jitter(contendedPause, 0.3))
			return nil
		}
		known = true
	}
}

func (s *Store) contended(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitLocked(name, func(w *waitState) { w.polls = polls })
}

// patience is how long to wait first, and whether to ask then or to try for the lock.
func (s *Store) patience(name string) (pause time.Duration, ask bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	w := s.waitLocked(name, func(w *waitState) {
		switch {
		case !w.woke.IsZero() && now.Fast(w.woke) < time.Second:
			w.woke, w.polls = lease.Reading{}, polls
		case w.polls > 0:
			w.polls--
		}
	})
	switch {
	case !w.delayed.IsZero() && now.Fast(w.delayedAt) < 2*time.Second:
		return lease.Jitter(delayPause, 0.2), false
	case w.polls > 0:
		return lease.Jitter(pollPause, 0.5), w.polls == 1
	}
	return 0, true
}

func (s *Store) polling(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits[name].polls > 0
}

// ask makes one query, which blocks if the key's index is known, and tells whether the lock looks free. An index that went
// backward, as after a restore, starts anew.
func (s *Store) ask(ctx context.Context, name string) (free bool, err error) {
	s.mu.Lock()
	last := s.waits[name].index
	s.mu.Unlock()
	pair, next, err := s.blockingGet(ctx, name, last)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitLocked(name, func(w *waitState) { w.index = next })
	return pair == nil || pair.Session == "", nil
}

// blockingGet reads the key of a lock when its index is above last, or at the end of waitTime; at once if last is 0. next is what
// to ask with the next time. A query that the service does not answer in time counts as one without news.
func (s *Store) blockingGet(ctx context.Context, name string, last uint64) (pair *api.KVPair, next uint64, err error) {
	if err := storeerr.Sendable(ctx); err != nil {
		return nil, 0, s.fail(ctx, "wait for", name, reading, err)
	}
	cut, cancel := context.WithTimeout(ctx, waitCut)
	defer cancel()
	q := query(cut)
	q.WaitIndex, q.WaitTime = last, waitTime
	pair, meta, err := s.api.KV().Get(s.lockPath(name), q)
	if err != nil {
		return nil, 0, s.fail(ctx, "wait for", name, reading, err)
	}
	if meta.LastIndex < last {
		return pair, 0, nil
	}
	return pair, meta.LastIndex, nil
}

func (s *Store) wake(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitLocked(name, func(w *waitState) { w.woke = s.clock() })
}

// sawDelay takes note of a lock-delay and tells how long it can still last.
func (s *Store) sawDelay(name string, delay time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	w := s.waitLocked(name, func(w *waitState) {
		if w.delayed.IsZero() || now.Slow(w.delayed) > delay {
			w.delayed = now
		}
		w.delayedAt, w.polls = now, 0
	})
	return max(delay-now.Slow(w.delayed), 0)
}

// highest is the highest token that this store was given for a lock, of which t is the newest.
func (s *Store) highest(name string, t lease.Token) lease.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waitLocked(name, func(w *waitState) { w.token = max(w.token, t) }).token
}

// won forgets what made the waits for a lock patient.
func (s *Store) won(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitLocked(name, func(w *waitState) { w.woke, w.polls, w.delayed = lease.Reading{}, 0, lease.Reading{} })
}

func (s *Store) undelayed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.waits[name]; ok {
		w.delayed = lease.Reading{}
		s.waits[name] = w
	}
}

// maxWatches bounds the blocking queries of one store: an agent bounds the connections of one client, by default to 200.
const maxWatches = 16

// Watch implements lease.Watcher: one blocking query at a time, which answers when the lock's key is unlocked, overwritten or
// deleted, or its session ends. ctx should end with the lease: the store then knows that it is not wanted any more.
//
// Of the leases of one store sixteen are watched by their keys; the others learn of the end of the session, which they share,
// from these.
func (s *Store) Watch(ctx context.Context, g lease.Grant) error {
	ended := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h, lost := s.watched(g, &cancel)
	if lost != nil {
		return s.lost("watch", g.Name, lost)
	}
	defer s.unwatched(h, &cancel)
	select {
	case s.watching <- struct{}{}:
		s.watchKey(ctx, h)
		<-s.watching
	case <-ctx.Done():
	}
	if ended.Err() != nil {
		s.unwanted(g.Request, false)
		return s.fail(ended, "watch", g.Name, reading, ended.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.told = true
	return s.lost("watch", g.Name, h.lost)
}

// watched registers stop, which is called when the lease is lost. If it is lost already, that is told.
func (s *Store) watched(g lease.Grant, stop *context.CancelFunc) (h *hold, lost error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h = s.holdOfLocked(g.Request)
	switch {
	case h == nil:
		return nil, errSessionOver
	case h.lost != nil:
		h.told = true
		return nil, h.lost
	}
	if h.losses == nil {
		h.losses = map[*context.CancelFunc]struct{}{}
	}
	h.losses[stop] = struct{}{}
	return h, nil
}

func (s *Store) unwatched(h *hold, stop *context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(h.losses, stop)
}

// watchKey returns when the lease is lost or ctx has ended.
func (s *Store) watchKey(ctx context.Context, h *hold) {
	last := uint64(0)
	for quick := 0; ctx.Err() == nil; quick++ {
		began := s.clock()
		pair, next, err := s.blockingGet(ctx, h.Name, last)
		if ctx.Err() != nil {
			return
		}
		intact := err == nil && pair != nil && pair.Session == h.ses.id && pair.ModifyIndex == h.index
		if err == nil && !intact { // it may be older than the grant: one consistent read decides
			if err = s.confirm(ctx, h); err == nil && s.isLost(h) {
				s.checkOthers(ctx, h.ses)
				return
			}
		}
		last = next
		if s.clock().Fast(began) > prompt {
			quick = 0
		}
		if err != nil {
			last = 0
		}
		if err != nil || quick > 0 {
			sleep(ctx, lease.Jitter(delayPause, 0.2))
		}
	}
}

func (s *Store) isLost(h *hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.lost != nil
}

// checkOthers looks after the other leases of a session when one was lost, which ended ctx: it may be the session that ended, and
// then they are told. It does not take long, because the holder of the one that was lost is told afterwards.
func (s *Store) checkOthers(ctx context.Context, ses *session) {
	if _, living := s.straysOf(ses); living {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ses.ttl/4)
		defer cancel()
		_ = s.renewed(ctx, ses) // if it fails, they learn it at their own renewals
	}
}
