package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Func works on one shard until it is finished (Shard.Finish), or until it is asked to stop (Shard.Stopping, and later the
// end of ctx). If it returns without having been asked, it is called again: after Options.Interval if it returned nil,
// after growing pauses if it failed. A panic is not caught.
//
// ctx ends with cause lease.ErrLost when the shard is no longer this worker's, and with ErrHandOver when it has gone on for
// Options.Grace after it was asked to stop. In both cases the shard moves no earlier than ctx has ended.
type Func = func(ctx context.Context, s *Shard) error

var (
	// ErrHandOver is the cause with which the context of a function ends that went on after it was asked to stop.
	ErrHandOver = errors.New("the shard is handed over")
	// ErrOverrun says that a function has not returned within Options.StopLimit. Its shard has moved on; its writes are refused by a
	// fence, and its checkpoints are refused. It comes from Run in a *lease.Error of class lease.ErrLost.
	ErrOverrun = errors.New("functions have not returned within their limit")
)

// The kinds of events that a worker tells its client's observer, beside those of its lease. Name is the group, or the key of
// the shard's record; Token is the shard's.
const (
	Claimed      lease.EventKind = "shard claimed"
	HandedOver   lease.EventKind = "shard handed over" // given back in order; Took is the time since it was asked to stop
	Forced       lease.EventKind = "shard forced"      // its function did not stop in time
	Finished     lease.EventKind = "shard finished"
	Parked       lease.EventKind = "shard parked"
	ShardLost    lease.EventKind = "shard lost"
	Failed       lease.EventKind = "shard failed" // its function returned an error
	RowLost      lease.EventKind = "shard record lost"
	Joined       lease.EventKind = "worker joined"
	Left         lease.EventKind = "worker left"
	Buried       lease.EventKind = "worker buried" // this worker took a dead one's lease
	GroupFailed  lease.EventKind = "group failed"  // a look at the group failed; it is repeated
	SourceFailed lease.EventKind = "source failed" // the source failed or its list is not valid; it is listed again
)

// Worker is one worker of a group. Make it with New.
type Worker struct {
	group
	source Source
	opt    Options
	gate   gate

	mu       sync.Mutex
	running  bool
	busy     map[string]int           // functions that have not returned, by shard
	quiet    chan struct{}            // closed when busy is empty; nil while nobody waits for that
	rescue   map[string]string        // shards that this worker lost with their record, and their positions
	gave     map[string]lease.Reading // shards that were handed over, and when
	settling string                   // which new roster was first seen to settle at since
	since    lease.Reading
	stuck    bool // a function has not returned in time
}

// New makes a worker of the group, which shares out the shards of source. The group's name is 1 to 100 bytes without a slash;
// the locks and records whose names begin with it and a slash are the group's. nil options are all defaults. The client
// may be shared; its store must keep records (lease.Records). New makes no request, and reports all faults at once.
func New(c *lease.Client, groupName string, source Source, o *Options) (*Worker, error) {
	g, err := newGroup(c, groupName)
	if err != nil {
		return nil, err
	}
	if source == nil {
		return nil, lease.Invalid("configure", groupName, "the source is nil")
	}
	if s, ok := source.(static); ok {
		if err := g.checkList(s); err != nil {
			return nil, err
		}
	}
	if o == nil {
		o = &Options{}
	}
	co := c.Options()
	opt := o.withDefaults(co)
	if err := opt.check(groupName, co); err != nil {
		return nil, err
	}
	co.MaxHold, co.Progress = 0, 0 // a worker's lease lasts as long as the worker
	if g.c, err = c.With(co); err != nil {
		return nil, err
	}
	return &Worker{
		group: g, source: source, opt: opt, gate: newGate(), busy: map[string]int{}, rescue: map[string]string{},
		gave: map[string]lease.Reading{},
	}, nil
}

// Holder is how this worker is known to others: the client's Options.Holder and an id of this instance.
func (w *Worker) Holder() string { return w.c.Holder() }

// Options are the options in force, defaults filled in.
func (w *Worker) Options() Options { return w.opt }

// Run works until ctx ends: it joins the group, runs fn for its fair share of the shards, each on a goroutine of its own, and
// hands over what is too much. It blocks. When ctx has ended it asks all functions to stop, hands their shards back and
// leaves the group; that takes at most Grace and StopLimit and a few requests.
//
// It returns nil then, or ErrOverrun if a function has not returned. A store that is out is tried for ever, and a lost lease
// is followed by a new one; errors that trying again cannot mend are returned.
func (w *Worker) Run(ctx context.Context, fn Func) error {
	if fn == nil {
		return lease.Invalid("run", w.name, "the function is nil")
	}
	w.mu.Lock()
	if w.running {
		w.mu.Unlock()
		return lease.Invalid("run", w.name, "this worker runs already; make another one")
	}
	w.running, w.stuck = true, false
	w.mu.Unlock()
	err := w.run(ctx, fn)
	w.awaitFunctions()
	w.settle(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	if len(w.busy) > 0 {
		err = errors.Join(err, &lease.Error{
			Op: "stop", Name: w.name, Class: lease.ErrLost, Err: fmt.Errorf("%w: %.200q", ErrOverrun, slices.Sorted(maps.Keys(w.busy))),
			Hint: "end the process, or wait for them",
		})
	}
	return err
}

func (w *Worker) run(ctx context.Context, fn Func) error {
	for ctx.Err() == nil {
		s, err := w.join(ctx, fn)
		if err == nil {
			err = s.serve(ctx)
		}
		switch {
		case ctx.Err() != nil:
			if err != nil && !transient(err) && !errors.Is(err, lease.ErrLost) {
				return err
			}
			return nil
		case errors.Is(err, lease.ErrLost):
		case err != nil && !transient(err):
			return err
		case err != nil:
			w.tell(GroupFailed, w.name, 0, 0, err)
		}
		sleep(ctx, jitter(maxPause, 0.3))
	}
	return nil
}

// awaitFunctions waits for functions of shards that were lost, which nobody has waited for, for StopLimit. If one is known to be
// stuck, the time has been given.
func (w *Worker) awaitFunctions() {
	w.mu.Lock()
	quiet := make(chan struct{})
	if len(w.busy) == 0 || w.stuck {
		w.mu.Unlock()
		return
	}
	w.quiet = quiet
	w.mu.Unlock()
	t := time.NewTimer(w.opt.StopLimit)
	defer t.Stop()
	select {
	case <-quiet:
	case <-t.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = nil
}

// returned notes that a function of the shard has.
func (w *Worker) returned(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[id]--; w.busy[id] > 0 {
		return
	}
	delete(w.busy, id)
	if len(w.busy) == 0 && w.quiet != nil {
		close(w.quiet)
		w.quiet = nil
	}
}

// settle waits for what was given back in the background, so that Run leaves nothing behind.
func (w *Worker) settle(ctx context.Context) {
	const giveBackPauses = 2 * time.Second
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*w.c.Options().CallTimeout+giveBackPauses)
	defer cancel()
	_ = w.c.Settle(bounded) // what is late goes on for one more call, and is told to the observer
}

func (w *Worker) tell(kind lease.EventKind, name string, token lease.Token, took time.Duration, err error) {
	w.c.Options().Observer.Observe(lease.Event{
		Kind: kind, Name: name, Holder: w.c.Holder(), Token: token, Took: took, Err: err,
	})
}

// swapRow stores r, when it is its turn.
func (w *Worker) swapRow(ctx context.Context, old lease.Record, r row) (rec lease.Record, err error) {
	value := r.encode()
	if !w.gate.pass(ctx, func() { rec, err = w.swap(ctx, old, value) }) {
		err = w.fail("swap", old.Key, lease.ErrUnavailable, lease.Cause(ctx))
	}
	return rec, err
}
