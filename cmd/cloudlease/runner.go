package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/backend"
	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/child"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// runner runs one command.
type runner struct {
	*app
	runOptions
	url    string
	client *lease.Client
	sup    *child.Supervisor

	held    atomic.Pointer[lease.Lease] // while the command runs
	blocker atomic.Pointer[lease.HeldError]
	failing atomic.Bool // a renewal has failed and none has passed since

	mu      sync.Mutex
	running bool
	stopped os.Signal // what ended the wait
	cancel  context.CancelFunc

	result child.Result
	err    error // why the command did not start
	lost   error // of the lease, while the command ran
}

// run is the run command.
func (a *app) run(ctx context.Context, o runOptions) error {
	b, err := a.place()
	if err != nil {
		return failed(err)
	}
	if !b.Shared() {
		return usage("%s is seen by this process alone, so that a command under it would exclude nobody; use a store that others see", b.URL())
	}
	r := &runner{app: a, runOptions: o, url: b.URL()}
	if r.sup, err = child.Launch(); err != nil {
		return &exitError{code: o.codes["store"], err: err}
	}
	defer r.sup.Dismiss()
	if err := r.connect(ctx, b); err != nil {
		return &exitError{code: o.codes.of(err), err: err}
	}
	ctx, stop := r.listen(ctx)
	defer stop()
	if o.occurrence.IsZero() {
		err = r.plain(ctx)
	} else {
		err = r.scheduled(ctx)
	}
	r.leave(context.WithoutCancel(ctx))
	return err
}

// connect makes the client.
func (r *runner) connect(ctx context.Context, b backend.Backend) error {
	s, err := b.Open(ctx)
	if err != nil {
		return err
	}
	r.client, err = lease.New(s, &lease.Options{TTL: r.ttl, Margin: r.ttl / marginShare, Observer: lease.ObserverFunc(r.observe)})
	return err
}

// leavePatience bounds what is done at the end for others: giving back an acquire that was cut off, and ending a session.
const leavePatience = 10 * time.Second

func (r *runner) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	_ = r.client.Close(ctx) // what it could not do ends by itself, and the observer has told it
}

// listen passes signals on to the command; before it runs, they end the wait for the lock.
func (r *runner) listen(ctx context.Context) (context.Context, func()) {
	ctx, r.cancel = context.WithCancel(ctx)
	signals := make(chan os.Signal, 16)
	for _, sig := range passed {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	// A message to a pipe that nobody reads any more must not end this process before its command.
	if !signal.Ignored(brokenPipe) {
		signal.Notify(make(chan os.Signal, 1), brokenPipe)
	}
	over := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-signals:
				r.signal(sig)
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		r.cancel()
	}
}

func (r *runner) signal(sig os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.running:
		r.sup.Signal(sig)
	case !harmless(sig) && r.stopped == nil:
		r.stopped = sig
		r.cancel()
	}
}

// begin tells that signals are the command's from now on, unless one has come before.
func (r *runner) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = r.stopped == nil
	return r.running
}

// interrupted is the end of a run whose wait was ended by a signal.
func (r *runner) interrupted() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped == nil {
		return nil
	}
	return &exitError{code: codeFirst + number(r.stopped), err: fmt.Errorf("%v: the command was not started", r.stopped)}
}

// plain runs the command under the lock alone.
func (r *runner) plain(ctx context.Context) error {
	l, err := r.acquire(ctx)
	if stopped := r.interrupted(); stopped != nil {
		if err == nil {
			_ = l.Release(ctx)
		}
		return stopped
	}
	if err != nil {
		return r.refused(ctx, err)
	}
	if singleton.IsPaused(l.Marks()) {
		_ = l.Release(ctx)
		r.say("%s is paused: the command is not run; cloudlease resume %s ends the pause", quoted(r.name), quoted(r.name))
		return nil
	}
	_ = r.hold(ctx, l) // how it ended is kept in r
	return r.end(l.Release(ctx))
}

// acquire takes the lock, waiting as asked.
func (r *runner) acquire(ctx context.Context) (*lease.Lease, error) {
	done := r.waitFor(r.waiting)
	defer done()
	if r.wait == 0 && r.ifHeld != heldWait {
		return r.client.TryAcquire(ctx, r.name)
	}
	if r.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.wait, fmt.Errorf("not obtained within %v", r.wait))
		defer cancel()
	}
	return r.client.Acquire(ctx, r.name)
}

// waiting says what is waited for.
func (r *runner) waiting() string {
	text := "waiting for " + quoted(r.name)
	if h := r.blocker.Load(); h != nil && h.Holder != "" {
		text += fmt.Sprintf(", held by %s", h.Holder)
	}
	return text
}

// observe tells the user what may end the command, and the supervisor what lets it run on.
func (r *runner) observe(e lease.Event) {
	switch e.Kind {
	case lease.Contended:
		if h, ok := errors.AsType[*lease.HeldError](e.Err); ok {
			r.blocker.Store(h)
		}
	case lease.Renewed:
		if l := r.held.Load(); l != nil {
			r.grant(l)
		}
		if r.failing.Swap(false) {
			r.say("the lease on %s is renewed again", quoted(e.Name))
		}
	case lease.RenewFailed:
		if !r.failing.Swap(true) {
			r.say("the lease on %s is not renewed, trying again: %v", quoted(e.Name), e.Err)
		}
	case lease.Abandoned:
		if e.Err != nil {
			r.say("%s may stay locked for up to %v: %v", quoted(e.Name), r.ttl, e.Err)
		}
	case lease.Namesake:
		r.say("%v", e.Err)
	default: // the end of the run tells the rest
	}
}
