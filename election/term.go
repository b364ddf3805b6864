package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// term is one call of lead.
type term struct {
	l        *lease.Lease
	began    lease.Reading
	ended    <-chan struct{} // the term's context has ended
	returned chan struct{}   // lead has returned
	done     chan struct{}   // and the lock was given back
	err      error           // lead's; read it after returned
	why      [2]error        // the context's error and cause when lead returned, nil if it had not ended

	stopping lease.Reading // when the context was seen to have ended; guarded by Election.mu
}

// over tells whether lead has returned and the lock was given back.
func (t *term) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// errAborted is the error of a lead that ended its goroutine instead of returning.
var errAborted = errors.New("lead ended without returning")

// start begins a term. The goroutine that calls lead gives the lock back, whenever that is: also when Run no longer waits, and
// before a panic ends the process.
func (e *Election) start(ctx context.Context, l *lease.Lease, lead Lead) *term {
	held, cancel := l.Context(ctx)
	t := &term{
		l: l, began: e.c.Clock()(), ended: held.Done(), returned: make(chan struct{}), done: make(chan struct{}), err: errAborted,
	}
	e.mu.Lock()
	e.term = t
	e.phase = phase{state: Leading, since: t.began}
	e.tellChangeLocked()
	e.mu.Unlock()
	e.tell(Elected, t, nil)
	go func() {
		defer close(t.done)
		defer func() { _ = l.Release(ctx) }() // its failure is told to the observer
		defer close(t.returned)
		defer cancel()
		t.err = lead(held, l)
		t.why = [2]error{held.Err(), context.Cause(held)}
	}()
	return t
}

// watchEvery is how often the clocks are read while lead is expected to return: timers stand still in a suspended machine.
const watchEvery = 100 * time.Millisecond

// serve waits for the end of a term. It fails with ErrOverrun if lead has not returned within its limit.
func (e *Election) serve(t *term) error {
	if !e.watch(t) {
		err := e.overrunError(t)
		e.tell(Overrun, t, err)
		return err
	}
	e.mu.Lock()
	e.seen = sight{} // the store is to be asked who leads now
	e.tellChangeLocked()
	e.mu.Unlock()
	e.tell(StoodDown, t, t.failure())
	return nil
}

// watch waits for the end of a term. It is false if lead has not returned in time.
func (e *Election) watch(t *term) bool {
	select {
	case <-t.returned:
		<-t.done
		return true
	case <-t.ended:
	}
	e.stop(t)
	for left := e.limit(t); left > 0; left = e.limit(t) {
		timer := time.NewTimer(min(left, watchEvery))
		select {
		case <-t.returned:
			timer.Stop()
			<-t.done
			return true
		case <-timer.C:
		}
	}
	return e.late(t)
}

// stop notes that lead is to return now.
func (e *Election) stop(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.stopping = e.c.Clock()()
	e.phase = phase{state: Stopping, since: t.stopping, within: e.opt.StopLimit + slack}
}

// limit is how long lead has left to return: until StopLimit and, where the process is ended then, until its lost lease ends
// on the service.
func (e *Election) limit(t *term) time.Duration {
	now := e.c.Clock()()
	left := e.opt.StopLimit - now.Fast(t.stopping)
	if e.opt.Exit != nil && errors.Is(t.l.Err(), lease.ErrLost) {
		left = min(left, e.hardLimit(t, now))
	}
	return left
}

// hardLimit is the time to the end of t's lease on the service, at r+TTL; a little less, so that what is done then is done
// by then.
func (e *Election) hardLimit(t *term, now lease.Reading) time.Duration {
	g := t.l.Grant()
	return g.Trust - e.margin/10 - now.Fast(g.Sent)
}

// late deals with a lead that is past its limit. It is true if lead has returned just then.
func (e *Election) late(t *term) bool {
	select {
	case <-t.returned:
		<-t.done
		return true
	default:
	}
	if e.opt.Exit != nil {
		e.opt.Exit(ExitCode)
	}
	t.l.Lapse() // lead may still act: neither released, nor kept for ever
	e.enter(Overrunning, 0)
	return false
}

// failure is what went wrong with a term that is over: the loss of its lease, or lead's error, unless it returned because it
// was told to.
func (t *term) failure() error {
	switch lost := t.l.Err(); {
	case errors.Is(lost, lease.ErrLost):
		return lost
	case t.why[0] != nil && (errors.Is(t.err, t.why[0]) || errors.Is(t.err, t.why[1])):
		return nil
	}
	return t.err
}

// verdict is what the end of a term means for Run: nil to stand again, or to stop if Run's context has ended.
func (t *term) verdict() error {
	if err := t.failure(); !errors.Is(err, lease.ErrLost) && !errors.Is(err, lease.ErrStale) {
		return err
	}
	return nil
}

func (e *Election) overrunError(t *term) error {
	return &lease.Error{
		Op: "stand down", Store: e.c.Store().Limits().Store, Name: e.name, Class: lease.ErrLost,
		Err: fmt.Errorf("%w of %v, token %d", ErrOverrun, e.opt.StopLimit, t.l.Token()),
		Hint: "end the process: lead may still act; the lock is not released but ends by itself, and this candidate does not " +
			"stand again before lead has returned",
	}
}
