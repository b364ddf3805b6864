package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The pauses between tries of a renewal that fails.
const (
	minRetry = 200 * time.Millisecond // no storm: at most five requests a second for one lease
	maxRetry = time.Second
)

// start begins to keep the lease alive. Both timers run their function on a goroutine of its own only when they fire, so that a
// lease that is released before its first renewal costs none. The keeper's context hangs on the lease alone, never on the
// caller's.
func (l *Lease) start() {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	pause := l.pause()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.nextLocked(l.c.clock()), l.onTimer)
	l.beat = time.AfterFunc(pause, func() { l.keep(ctx) })
	if w, ok := l.c.store.(Watcher); ok {
		l.watcher = time.AfterFunc(watchAfter, func() { l.watch(ctx, w) })
	}
}

// watchAfter spares a lock that is held for a moment the request of a watch.
const watchAfter = time.Second

// watch ends the lease as soon as its store hears that it is gone.
func (l *Lease) watch(ctx context.Context, w Watcher) {
	if err := w.Watch(ctx, l.Grant()); errors.Is(err, ErrLost) {
		l.lose(Gone, err)
	}
}

// keep makes one renewal and sets the time of the next: one call at a time, each bounded by the deadline, retried until it.
func (l *Lease) keep(ctx context.Context) {
	pause, more := l.renew(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if more && l.cause == nil {
		l.beat.Reset(max(pause, 0))
	}
}

// renew tries to renew the lease and says when to do so next; more is false if the lease is over.
func (l *Lease) renew(ctx context.Context) (pause time.Duration, more bool) {
	sent := l.c.clock()
	if why, err := l.undeserved(sent); err != nil {
		l.failed(why, err)
		return l.retryPause(), true
	}
	err := l.call(ctx, l.renewTimeout(), l.c.store.Renew)
	took := l.c.clock().Fast(sent)
	switch {
	case ctx.Err() != nil: // it ended meanwhile; a late success changes nothing
		return 0, false
	case err == nil:
		l.c.observe(Event{Kind: Renewed, Name: l.Name(), Token: l.Token(), Took: took})
		return l.pause(), true
	case errors.Is(err, ErrLost):
		l.lose(Gone, err)
		return 0, false
	}
	l.failed(Unrenewed, err)
	l.c.observe(Event{Kind: RenewFailed, Name: l.Name(), Token: l.Token(), Took: took, Err: err})
	return l.retryPause(), true
}

// failed keeps why the lease was not renewed, for the report of a loss.
func (l *Lease) failed(why LossKind, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why, l.failure = why, err
}

// undeserved tells why the lease is not renewed any more, or nil. A holder that makes progress again is renewed again.
func (l *Lease) undeserved(now Reading) (LossKind, error) {
	o := l.c.opt
	l.mu.Lock()
	defer l.mu.Unlock()
	switch held, idle := now.Fast(l.began), now.Fast(l.progress); {
	case l.lapsed:
		return GivenUp, errors.New("its holder gave it up")
	case o.MaxHold > 0 && held >= o.MaxHold:
		return Capped, fmt.Errorf("held for %v, the longest allowed", o.MaxHold)
	case o.Progress > 0 && idle >= o.Progress:
		return Idle, fmt.Errorf("its holder made no progress for %v", o.Progress)
	}
	return "", nil
}

// Lapse ends the renewals for good without a release: the lease is lost at its deadline, and the lock is free when the service
// says so. It is for a holder that does not know whether its work has stopped, where a release would let the next
// begin too soon. It makes no request and never blocks.
func (l *Lease) Lapse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lapsed = true
}

// Progress tells that the holder is not stuck. It only matters with Options.Progress, makes no request and never blocks.
func (l *Lease) Progress() {
	now := l.c.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress = now
}

// pause is the time to the next renewal: the heartbeat, or half of what is left where the store vouches for less.
func (l *Lease) pause() time.Duration {
	return min(Jitter(l.c.opt.Heartbeat, 0.1), l.remaining(l.c.clock())/2)
}

// retryPause leaves room for several tries before the deadline.
func (l *Lease) retryPause() time.Duration {
	left := l.remaining(l.c.clock())
	return max(Jitter(min(max(left/6, minRetry), maxRetry), 0.3), minRetry)
}

// resendPause is the pause after one of the few tries of an acquire or a release, which somebody waits for.
func resendPause(try int) time.Duration {
	return Jitter(time.Duration(try)*300*time.Millisecond, 0.3) // never below minRetry
}

// renewTimeout bounds one renewal so that one that hangs leaves room for several more tries, and one that is slow, but within a
// sixth of the TTL, is not cut off.
func (l *Lease) renewTimeout() time.Duration {
	left := l.remaining(l.c.clock())
	return min(max(left*2/5, minRetry), l.c.opt.CallTimeout)
}

// call makes one request for this lease and takes the renewed grant. Calls take turns, so that the grant that a call
// starts from is the one the call before it left.
func (l *Lease) call(ctx context.Context, timeout time.Duration, do func(context.Context, Grant) (Grant, error)) error {
	select {
	case <-l.turn:
	case <-ctx.Done():
		return &Error{Op: "wait for the lease", Name: l.Name(), Class: ErrUnavailable, Err: Cause(ctx)}
	}
	defer func() { l.turn <- struct{}{} }()
	if ended := l.Err(); ended != nil { // while it waited for its turn
		return ended
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	g, err := do(ctx, l.Grant())
	if err != nil {
		return err
	}
	if _, err := l.undeserved(l.c.clock()); err == nil {
		l.extend(g)
	}
	return nil
}

// extend takes a renewed grant. A lease that has ended stays ended: a late success does not revive it.
func (l *Lease) extend(g Grant) {
	now := l.c.clock()
	l.check(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	old := l.grant
	l.grant.Proof, l.grant.Expires, l.failure = g.Proof, g.Expires, nil
	l.grant.Sent, l.grant.Trust = g.Sent, g.Trust
	if now.Fast(old.Sent)-old.Trust < now.Fast(g.Sent)-g.Trust { // the older promise reaches further, and still holds
		l.grant.Sent, l.grant.Trust = old.Sent, old.Trust
	}
	l.warned = false
	l.timer.Reset(l.nextLocked(now))
}

// remaining is how long the lease can still be trusted at now, by the clock that says less.
func (l *Lease) remaining(now Reading) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remainingLocked(now)
}

func (l *Lease) remainingLocked(now Reading) time.Duration {
	return l.grant.Trust - l.c.opt.Margin - now.Fast(l.grant.Sent)
}

// overdue tells whether the lease has not ended although its deadline is passed at now.
func (l *Lease) overdue(now Reading) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause == nil && l.remainingLocked(now) <= 0
}

// check ends the lease if its deadline is passed at now.
func (l *Lease) check(now Reading) {
	if !l.overdue(now) {
		return
	}
	l.mu.Lock()
	why, failure := l.why, l.failure
	l.mu.Unlock()
	if failure != nil {
		l.lose(why, fmt.Errorf("not renewed before its deadline; the last try: %w", stripClass(failure)))
		return
	}
	l.lose(Paused, errors.New("not renewed before its deadline: this process was paused, or a request hung"))
}

// nextLocked is the time to the next instant that matters: first when a third is left, then the deadline.
func (l *Lease) nextLocked(now Reading) time.Duration {
	left := l.remainingLocked(now)
	if third := (l.grant.Trust - l.c.opt.Margin) / 3; !l.warned && left > third {
		left -= third
	}
	return max(left, time.Millisecond)
}

// onTimer runs when the timer says that the deadline, or the last third before it, has come; the clocks decide.
func (l *Lease) onTimer() {
	now := l.c.clock()
	l.check(now)
	l.mu.Lock()
	if l.cause != nil {
		l.mu.Unlock()
		return
	}
	left, failure := l.remainingLocked(now), l.failure
	warn := !l.warned && left <= (l.grant.Trust-l.c.opt.Margin)/3
	l.warned = l.warned || warn
	l.timer.Reset(l.nextLocked(now))
	l.mu.Unlock()
	if warn {
		l.c.observe(Event{Kind: Jeopardy, Name: l.Name(), Token: l.Token(), Took: left, Err: failure})
	}
}

// stripClass takes the class off a failed try, so that a loss matches ErrLost alone.
func stripClass(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Err != nil {
			return fmt.Errorf("%s: %w", e.Class.Error(), e.Err)
		}
		return errors.New(e.Class.Error())
	}
	return err
}
