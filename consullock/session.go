package consullock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// session is one of Consul's, which all locks of one TTL share. What may change is guarded by Store.mu.
type session struct {
	id    string
	ttl   time.Duration
	delay time.Duration

	sent     lease.Reading    // when the last good request was sent that made or renewed it
	dead     bool             // the service does not know it any more
	round    *round           // the newest renewal under way
	failure  error            // why the last one failed
	failedAt lease.Reading    // and when
	failures int              // how many have
	spare    bool             // it failed quickly: the next sends one request after the other
	doubts   map[string]doubt // by the names of locks that it may have without a hold
}

// creation is a session in the making. It outlives the call that asked for it, so that a caller who gives up leaves no session
// behind that nobody knows of.
type creation struct {
	stop context.CancelFunc
	done chan struct{}
	sent lease.Reading
	ses  *session
	err  error
}

// createTimeout bounds the making of a session, which its caller does not bound.
const createTimeout = 5 * time.Second

// maxSteps bounds the tries of one call on something that changes between them.
const maxSteps = 4

// session gives a session for r, and when it was last renewed.
func (s *Store) session(ctx context.Context, r lease.Request) (*session, lease.Reading, error) {
	ses, sent, making := s.lastSession(ctx, r)
	if ses != nil && s.clock().Fast(sent) > ses.ttl*3/2 { // it ends soon, and a lock that ends with it stays closed for the lock-delay
		if err := s.renewed(ctx, ses); err != nil && !errors.Is(err, errSessionOver) {
			return nil, sent, s.noSession(ctx, r.Name, err)
		}
		ses, sent, making = s.lastSession(ctx, r)
	}
	switch {
	case ses != nil:
		return ses, sent, nil
	case making == nil:
		return nil, sent, s.closedError("acquire", r.Name)
	}
	select {
	case <-making.done:
	case <-ctx.Done():
		return nil, sent, s.noSession(ctx, r.Name, ctx.Err())
	}
	if making.err != nil {
		return nil, sent, s.noSession(ctx, r.Name, making.err)
	}
	return making.ses, making.sent, nil
}

// noSession is the failure of an acquire before it has asked for the lock.
func (s *Store) noSession(ctx context.Context, name string, err error) error {
	made := s.fail(ctx, "acquire", name, sessions, err)
	if e, ok := errors.AsType[*lease.Error](made); ok && errors.Is(e.Class, lease.ErrInDoubt) {
		e.Class = lease.ErrUnavailable
	}
	return made
}

// lastSession is the session for r, or the one in the making, which it starts if there is none; neither if the store is closed.
func (s *Store) lastSession(ctx context.Context, r lease.Request) (*session, lease.Reading, *creation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, lease.Reading{}, nil
	}
	ses := s.sessions[r.TTL]
	if ses != nil && s.clock().Slow(ses.sent) > 2*ses.ttl && !s.usedLocked(ses) { // it has ended, or will: nobody renews it
		s.diedLocked(ses)
		ses = nil
	}
	if ses != nil {
		return ses, ses.sent, nil
	}
	c := s.making[r.TTL]
	if c == nil {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
		c = &creation{stop: stop, done: make(chan struct{})}
		s.making[r.TTL] = c
		go func() {
			defer stop()
			s.create(ctx, r, c)
		}()
	}
	return nil, lease.Reading{}, c
}

// usedLocked tells whether ses may have something: then it is asked whether it lives, because it lets its own client in at once and
// another session only after the lock-delay.
func (s *Store) usedLocked(ses *session) bool {
	for _, h := range s.holds {
		if h.ses == ses {
			return true
		}
	}
	return len(ses.doubts) > 0
}

// sessionRequest is what makes a session. The SDK's own leaves out a lock-delay of 0, which then is 15 s.
type sessionRequest struct {
	Name       string
	Node       string `json:",omitempty"`
	TTL        string
	LockDelay  string
	Behavior   string
	NodeChecks []string
}

// create makes a session, and ends it if the store was closed meanwhile.
func (s *Store) create(ctx context.Context, r lease.Request, c *creation) {
	defer close(c.done)
	sent := s.clock()
	ses := &session{ttl: r.TTL, delay: s.lockDelay(r.TTL), sent: sent, doubts: map[string]doubt{}}
	in := sessionRequest{
		Name: "cloudlease " + r.Holder + ", locks in " + s.opt.Prefix, Node: s.opt.Node, TTL: ses.ttl.String(),
		LockDelay: ses.delay.String(), Behavior: "release", NodeChecks: append([]string{}, s.opt.Checks...),
	}
	var out struct{ ID string }
	_, err := s.api.Raw().Write("/v1/session/create", in, &out, write(ctx))
	if err == nil && out.ID == "" {
		err = errors.New("the answer names no session")
	}
	ses.id = out.ID
	s.mu.Lock()
	delete(s.making, r.TTL)
	closed := s.closed
	if err == nil && !closed {
		s.sessions[r.TTL] = ses
	}
	s.mu.Unlock()
	if err == nil && closed {
		err = errors.Join(errors.New("the store was closed"), s.destroy(ctx, ses))
	}
	c.ses, c.sent, c.err = ses, sent, err
}

func (s *Store) lockDelay(ttl time.Duration) time.Duration {
	if s.opt.LockDelay == 0 {
		return ttl
	}
	return max(s.opt.LockDelay, 0)
}

// errSessionOver: the service does not know the session any more.
var errSessionOver = errors.New("the session has ended")

// died forgets a session that has ended, and with it what it held.
func (s *Store) died(ses *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.diedLocked(ses)
}

func (s *Store) diedLocked(ses *session) {
	ses.dead = true
	if s.sessions[ses.ttl] == ses {
		delete(s.sessions, ses.ttl)
	}
	for name, h := range s.holds {
		if h.ses != ses || h.busy > 0 {
			continue
		}
		h.loseLocked(errSessionOver, true)
		delete(s.holds, name)
	}
}

func (s *Store) destroy(ctx context.Context, ses *session) error {
	if _, err := s.api.Session().Destroy(ses.id, write(ctx)); err != nil {
		return s.fail(ctx, "destroy the session of", "", sessions, err)
	}
	return nil
}

// end gives a session back, unless it has grants that were not released. What it holds without a grant is freed first, so that
// no lock-delay follows.
func (s *Store) end(ctx context.Context, ses *session) error {
	stray, living := s.straysOf(ses)
	s.mu.Lock()
	over := ses.dead || s.clock().Slow(ses.sent) > 2*ses.ttl
	s.mu.Unlock()
	if over {
		return nil
	}
	for _, name := range stray {
		_ = s.freeStray(ctx, ses, name) // then it ends with the session
	}
	if living {
		return nil
	}
	return s.destroy(ctx, ses)
}

// endIfIdle ends a session that holds nothing, after a lock was denied: what may not be locked leaves no session behind.
func (s *Store) endIfIdle(ctx context.Context, ses *session, asking *hold) error {
	s.mu.Lock()
	idle := !ses.dead && len(ses.doubts) == 0
	for _, h := range s.holds {
		idle = idle && (h == asking || h.ses != ses)
	}
	if idle && s.sessions[ses.ttl] == ses {
		delete(s.sessions, ses.ttl)
	}
	s.mu.Unlock()
	if !idle {
		return nil
	}
	if err := s.destroy(ctx, ses); err != nil {
		return fmt.Errorf("the session that was made for it stays until its TTL is over: %w", err)
	}
	return nil
}
