package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Lead is what a leader does. ctx ends with the term: with lease.ErrLost as its cause when the lease is lost, or with Run's own
// context. It carries the lease (lease.FromContext). Lead resigns by returning.
type Lead = func(ctx context.Context, l *lease.Lease) error

// ErrOverrun says that lead has not returned within its limit. It may still act, so the lock is not released; see Options.StopLimit.
var ErrOverrun = errors.New("lead has not returned within its limit")

// The kinds of events that an election tells its client's observer, beside those of the lease.
const (
	Elected   lease.EventKind = "elected"    // a term begins
	StoodDown lease.EventKind = "stood down" // lead has returned and the lock was given back; Took is the term's length
	Overrun   lease.EventKind = "overrun"    // lead has not returned; Took is the term's length
)

// Election is one candidate for, or one observer of, the leadership that a lock's name stands for. Its methods are safe for
// concurrent use. It needs no Close: it holds nothing but what Run and Changes hold until they end.
type Election struct {
	c      *lease.Client
	name   string
	opt    Options
	margin time.Duration
	ttl    time.Duration
	turn   chan struct{} // held by the one subscriber of Changes that looks

	mu      sync.Mutex
	phase   phase
	term    *term         // the present or the last one; nil before the first
	failure error         // of the last try to stand; nil after a good one
	seen    sight         // who led when the store was last asked
	changed chan struct{} // closed when a term begins or ends, or another leader was seen
}

// New makes a candidate for the leadership called name, which is a lock's name. nil options are all defaults. It makes no
// request. The client may be shared; the candidate has an instance id of its own (Holder). Faults in the options are
// reported all at once, as lease.ErrInvalid.
func New(c *lease.Client, name string, o *Options) (*Election, error) {
	if c == nil {
		return nil, lease.Invalid("configure", name, "the client is nil")
	}
	if o == nil {
		o = &Options{}
	}
	co := c.Options()
	opt, err := o.withDefaults(name, co)
	if err != nil {
		return nil, err
	}
	e := &Election{
		name: name, opt: opt, margin: co.Margin, ttl: co.TTL, changed: make(chan struct{}), turn: make(chan struct{}, 1),
		phase: phase{state: Observing},
	}
	if e.c, err = c.With(co); err != nil { // two candidates of one client are two holders
		return nil, err
	}
	return e, nil
}

// Holder is how this candidate is known to others: the client's Options.Holder and an id of this instance.
func (e *Election) Holder() string { return e.c.Holder() }

// Run stands for leader until ctx ends, and calls lead whenever it wins. It blocks, and may be called again after it has
// returned, not before.
//
// It returns nil once ctx has ended, lead has returned and the lock was given back; the error of lead, unchanged, if it failed
// while it led; ErrOverrun, of class lease.ErrLost, if lead did not return within StopLimit; or the store's error if
// waiting does not mend it. An error of lead that is ctx's own is none.
func (e *Election) Run(ctx context.Context, lead Lead) error {
	if lead == nil {
		return lease.Invalid("stand", e.name, "lead is nil")
	}
	if err := e.begin(); err != nil {
		return err
	}
	err := e.run(ctx, lead)
	e.settle(ctx)
	e.end(err)
	return err
}

func (e *Election) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.phase.state {
	case Observing, Stopped:
	case Overrunning:
		if !e.term.over() {
			return e.overrunError(e.term)
		}
	default:
		return lease.Invalid("stand", e.name, "this candidate stands already; make another one for a second Run")
	}
	e.phase = phase{state: Standing, since: e.c.Clock()(), within: e.standingWithin()}
	return nil
}

func (e *Election) run(ctx context.Context, lead Lead) error {
	for short := 0; ; {
		l, err := e.stand(ctx)
		if ctx.Err() != nil {
			if err == nil { // granted just then: nobody has led
				_ = l.Release(ctx) // its failure is told to the observer
			}
			return nil
		}
		if err != nil {
			return err
		}
		t := e.start(ctx, l, lead)
		if err := e.serve(t); err != nil {
			return err
		}
		if err := t.verdict(); err != nil || ctx.Err() != nil {
			return err
		}
		served := e.c.Clock()().Slow(t.began)
		if short++; served >= 2*e.ttl {
			short = 0
		}
		e.standBack(ctx, served, short)
	}
}

// stand blocks until this candidate is granted the lock or ctx ends. Errors that waiting does not mend are returned.
func (e *Election) stand(ctx context.Context) (*lease.Lease, error) {
	for failures := 0; ; {
		e.enter(Standing, e.standingWithin())
		l, err := e.c.TryAcquire(ctx, e.name)
		if held, ok := errors.AsType[*lease.HeldError](err); ok {
			failures = 0
			e.stood(nil)
			e.saw(e.leaderOf(held.Holder, held.Token))
			err = e.wait(ctx, held)
			if err == nil {
				continue
			}
		}
		e.stood(err)
		if err == nil || ctx.Err() != nil || !transient(err) {
			return l, err
		}
		failures++
		sleep(ctx, e.retryPause(failures))
	}
}

// wait blocks until the lock is worth another attempt, for a TTL at most, so that the loop is seen to turn.
func (e *Election) wait(ctx context.Context, held *lease.HeldError) error {
	bounded, cancel := context.WithTimeout(ctx, e.ttl)
	defer cancel()
	err := e.c.Wait(bounded, held)
	if bounded.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// outagePause lets a service that is out come to itself; an attempt in vain was several requests already.
const outagePause = 1300 * time.Millisecond

// retryPause grows with failures in a row to half a TTL, so that a candidate leads within two TTLs after an outage.
func (e *Election) retryPause(failures int) time.Duration {
	pause := outagePause << min(failures-1, 5)
	return lease.Jitter(max(min(pause, e.ttl/2), outagePause), 0.2)
}

// standBack lets others lead first, and keeps the terms of this candidate a TTL apart.
func (e *Election) standBack(ctx context.Context, served time.Duration, short int) {
	pause := e.opt.Pause
	for range short - 1 {
		if pause = 2 * pause; pause >= e.opt.MaxPause {
			pause = e.opt.MaxPause
			break
		}
	}
	pause = max(pause, e.ttl-served)
	e.enter(StandingBack, pause+slack)
	sleep(ctx, pause)
}

// settle waits for what was given back in the background, so that Run leaves nothing behind.
func (e *Election) settle(ctx context.Context) {
	const giveBackPauses = 2 * time.Second
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*e.c.Options().CallTimeout+giveBackPauses)
	defer cancel()
	_ = e.c.Settle(bounded) // what is late goes on for one more call, and is told to the observer
}

func (e *Election) tell(kind lease.EventKind, t *term, err error) {
	e.c.Options().Observer.Observe(lease.Event{
		Kind: kind, Name: e.name, Holder: e.c.Holder(), Token: t.l.Token(), Took: e.c.Clock()().Fast(t.began), Err: err,
	})
}

func transient(err error) bool {
	return errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrInDoubt)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
