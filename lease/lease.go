package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Lease is a lock held by this process. It is renewed in the background until it is released or lost. Its methods are safe
// for concurrent use.
type Lease struct {
	c     *Client
	began Reading
	done  chan struct{} // closed when the lease has ended
	turn  chan struct{} // holds the one turn to call the store for this lease

	stop context.CancelFunc // ends the keeper and what it is waiting for

	mu       sync.Mutex
	grant    Grant
	value    []byte
	cause    error       // why the lease ended; nil while it is valid
	failure  error       // of the last renewal, for the report of a loss
	why      LossKind    // what failure makes of a loss
	lapsed   bool        // the holder gave up the renewals
	progress Reading     // when the holder last said that it is not stuck
	warned   bool        // Jeopardy was told since the last renewal
	timer    *time.Timer // to the deadline
	beat     *time.Timer // to the next renewal
	watcher  *time.Timer // to the watch of a Watcher; nil for other stores
	cancels  map[*context.CancelCauseFunc]struct{}

	once     sync.Once
	released error
}

func newLease(c *Client, g Grant) *Lease {
	l := &Lease{
		c: c, began: g.Sent, progress: g.Sent, grant: g, value: g.Value,
		done: make(chan struct{}), turn: make(chan struct{}, 1),
		cancels: map[*context.CancelCauseFunc]struct{}{},
	}
	l.turn <- struct{}{}
	return l
}

// Name is the lock's name.
func (l *Lease) Name() string { return l.grant.Name }

// Token is the fencing token of this lease. Send it with every write that the lock protects.
func (l *Lease) Token() Token { return l.grant.Token }

// Holder is who holds the lease, unique to this client. A fence takes it beside the token.
func (l *Lease) Holder() string { return l.grant.Holder }

// Marks are the marks that were kept with the lock when it was granted.
func (l *Lease) Marks() Marks { return l.grant.Marks }

// Value is the value kept with the lock, as it was when the lease was granted or as last saved through it.
func (l *Lease) Value() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.value)
}

// Grant is the store's own view of the lease, for stores' fences.
func (l *Lease) Grant() Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grant
}

// Deadline is the instant after which the holder must not act: the start of the last successful renewal, plus what the store
// vouches for (the TTL, or less), minus Options.Margin. It moves with every renewal. It is this host's wall clock, for
// display; the lease itself goes by two clocks. It narrows the window for a stale writer; only a fence closes it.
func (l *Lease) Deadline() time.Time {
	now := l.c.clock()
	return now.Wall.Add(l.remaining(now))
}

// Done is closed when the lease has ended, by release or by loss.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err is nil while the lease is valid, then ErrLost or ErrReleased, wrapped with the reason. It reads the clocks, so it is
// right even when this process has just woken from a pause and no timer has fired yet. It makes no request.
func (l *Lease) Err() error {
	l.check(l.c.clock())
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

type contextKey struct{}

// FromContext is the lease that ctx was derived from with Lease.Context, as in a body that Client.Do or a recipe calls.
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(contextKey{}).(*Lease)
	return l, ok
}

// Context derives a context that ends with the lease, with ErrLost or ErrReleased as its cause, and carries the lease for
// FromContext. Call cancel when it is no longer needed.
func (l *Lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(context.WithValue(parent, contextKey{}, l))
	l.mu.Lock()
	cause := l.cause
	if cause == nil {
		l.cancels[&end] = struct{}{}
	}
	l.mu.Unlock()
	if cause != nil {
		end(cause)
	}
	return ctx, func() {
		l.mu.Lock()
		delete(l.cancels, &end)
		l.mu.Unlock()
		end(context.Canceled)
	}
}

// Save keeps v, at most MaxValue bytes, with the lock for its next holder. It fails with ErrLost or ErrReleased if the
// lease is over; then nothing was saved. ErrInDoubt means that it may have been, as when the lease ends meanwhile. It blocks for one request, bounded by ctx, Options.CallTimeout and the deadline.
func (l *Lease) Save(ctx context.Context, v []byte) error {
	if err := CheckValue(v); err != nil {
		return &Error{Op: "save", Store: l.c.limits.Store, Name: l.Name(), Class: ErrInvalid, Err: err}
	}
	if err := l.Err(); err != nil {
		return err
	}
	l.Progress()
	held, end := l.Context(ctx)
	defer end()
	ctx, cancel := context.WithCancel(ctx) // so that the error of a call that is cut off does not wrap the lease's end
	defer cancel()
	defer context.AfterFunc(held, cancel)()
	err := l.call(ctx, l.c.opt.CallTimeout, func(ctx context.Context, g Grant) (Grant, error) {
		return l.c.store.Save(ctx, g, v)
	})
	switch {
	case err == nil:
		l.mu.Lock()
		l.value = slices.Clone(v)
		l.mu.Unlock()
	case lostItself(err):
		l.lose(Gone, err)
	case errors.Is(err, ErrUnavailable) && l.Err() != nil:
		return l.Err() // it ended before anything was sent
	}
	return err
}

// lostItself tells whether err says that this lease is gone. The cause of a context, which err may wrap, says it of another.
func lostItself(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && errors.Is(e.Class, ErrLost)
}

// Release ends the lease and frees the lock. The lease's contexts end first, then the renewals, then one request is sent,
// retried twice if its answer is lost. It does not inherit ctx's cancellation: it has its own bound of three
// Options.CallTimeout. Later calls return the first call's result.
//
// A lease that was lost is still given back if it is nobody else's, and Release returns ErrLost. An error of class
// ErrUnavailable or ErrInDoubt means that the lock may stay until its lease ends.
func (l *Lease) Release(ctx context.Context) error { return l.ReleaseWith(ctx, Final{}) }

// ReleaseWith is Release that leaves f behind in the same write. If the lease was released before, nothing is left behind and
// the error is ErrReleased.
func (l *Lease) ReleaseWith(ctx context.Context, f Final) error {
	if err := CheckValue(f.Value); err != nil {
		return &Error{Op: "release", Store: l.c.limits.Store, Name: l.Name(), Class: ErrInvalid, Err: err}
	}
	var told *Event
	first := false
	l.once.Do(func() {
		first = true
		told, l.released = l.release(context.WithoutCancel(ctx), f)
	})
	if told != nil {
		l.c.observe(*told) // outside of once: an observer may release as well
	}
	if first {
		return l.released
	}
	if !errors.Is(l.released, ErrLost) && (f.Value != nil || f.Marks != nil) {
		return &Error{
			Op: "release", Store: l.c.limits.Store, Name: l.Name(), Class: ErrReleased,
			Err: errors.New("it was released before; what this release was to leave behind is not stored"),
		}
	}
	return l.released
}

// release is the first release. The event is for the observer; of a lease that was lost it has been told before.
func (l *Lease) release(ctx context.Context, f Final) (*Event, error) {
	lost := l.Err()
	attempts := tries
	if lost == nil {
		l.end(&Error{Op: "hold", Store: l.c.limits.Store, Name: l.Name(), Class: ErrReleased})
	} else {
		attempts = 1 // it is a courtesy to the next holder
	}
	<-l.turn // for good: a renewal or a Save under way has seen its context end, and no other begins
	err := l.sendRelease(ctx, f, attempts)
	l.mu.Lock()
	if errors.Is(l.cause, ErrLost) {
		lost = l.cause // the deadline may have been passed between the look and the end
	}
	l.mu.Unlock()
	if lost != nil {
		return nil, lost
	}
	now := l.c.clock()
	if !l.c.wakes() {
		l.c.crowds.released(l.Name(), now.Mono-l.began.Mono, now)
	}
	told := &Event{Kind: Released, Name: l.Name(), Token: l.Token(), Took: now.Fast(l.began)}
	if err != nil {
		told.Kind, told.Err = ReleaseFailed, err
	}
	return told, err
}

// staying adds to the error of a failed release until when the lock stays.
func (l *Lease) staying(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || errors.Is(err, ErrLost) {
		return err
	}
	told, g := *e, l.Grant()
	stays := "the lock stays until its lease ends"
	if errors.Is(err, ErrInDoubt) {
		stays = "it may have been done; if not, " + stays
	}
	if !g.Expires.IsZero() {
		stays += ", " + g.Expires.UTC().Format(time.RFC3339Nano) + " by the service's clock"
	}
	if told.Hint != "" {
		stays = told.Hint + "; " + stays
	}
	told.Hint = stays
	return &told
}

// sendRelease sends the release until it is answered. A refusal that follows an unanswered try tells that the lock is free of
// this lease.
func (l *Lease) sendRelease(ctx context.Context, f Final, attempts int) error {
	g := l.Grant()
	doubt := false
	for try := 1; ; try++ {
		callCtx, cancel := context.WithTimeout(ctx, l.c.opt.CallTimeout)
		err := l.c.store.Release(callCtx, g, f)
		cancel()
		if doubt && errors.Is(err, ErrLost) {
			return l.releasedInDoubt(f)
		}
		doubt = doubt || errors.Is(err, ErrInDoubt)
		if err == nil || !transient(err) || try >= attempts {
			return l.staying(err)
		}
		sleep(ctx, resendPause(try))
	}
}

// releasedInDoubt is the outcome of a release whose first try was not answered and whose next finds the lock gone: it is free
// of this lease, but what it was to leave behind may have been cut off by an operator's break.
func (l *Lease) releasedInDoubt(f Final) error {
	if f.Value == nil && f.Marks == nil {
		return nil
	}
	return &Error{
		Op: "release", Store: l.c.limits.Store, Name: l.Name(), Class: ErrInDoubt,
		Err: errors.New("the lock is released; whether what it was to leave behind is stored is unknown"),
	}
}

// end ends the lease, once, and tells whether this call did. Everything that waits for it is told before end returns.
func (l *Lease) end(cause error) bool {
	l.mu.Lock()
	if l.cause != nil {
		l.mu.Unlock()
		return false
	}
	l.cause = cause
	cancels := l.cancels
	l.cancels = nil
	l.timer.Stop()
	l.beat.Stop()
	if l.watcher != nil {
		l.watcher.Stop()
	}
	l.mu.Unlock()
	l.c.remove(l) // before anybody is told: who hears of the end and closes the client must not find the lease again
	close(l.done)
	for end := range cancels {
		(*end)(cause)
	}
	l.stop()
	return true
}

// lose ends the lease because of err.
func (l *Lease) lose(why LossKind, err error) {
	lost := &Error{
		Op: "hold", Store: l.c.limits.Store, Name: l.Name(), Class: ErrLost, Err: err,
		Hint: fmt.Sprintf("stop; a fence refuses writes with token %d once the next holder has written", l.Token()),
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Class == ErrLost { //nolint:errorlint // the class itself, not what it wraps
		lost.Err = e.Err
	}
	if l.end(lost) { // told on its own: who finds the loss may hold what an observer that releases or closes waits for
		go l.c.observe(Event{Kind: Lost, Name: l.Name(), Token: l.Token(), Took: l.c.clock().Fast(l.began), Loss: why, Err: lost})
	}
}
