package singleton_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

const jobName = "invoice"

// world is one lock service, the hosts that use it, and what their bodies did.
type world struct {
	t       *testing.T
	backend backend
	connect func(lease.Clock) lease.Store
	journal *journal

	mu    sync.Mutex
	hosts []*host
}

// until sleeps to an instant of the bubble's clock, which starts in the year 2000.
func (w *world) until(text string) time.Time {
	w.t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(w.t, err)
	time.Sleep(time.Until(at))
	return at
}

// ttl is the shortest TTL that the backend takes and that is not below d.
func (w *world) ttl(d time.Duration) time.Duration { return max(d, w.backend.minTTL) }

// host starts a process with clocks that are off by offset.
func (w *world) host(ttl time.Duration, o *singleton.Options, offset ...time.Duration) *host {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	clock := lease.Clock(lease.SystemClock)
	if len(offset) > 0 {
		clock = func() lease.Reading {
			r := lease.SystemClock()
			r.Wall = r.Wall.Add(offset[0])
			return r
		}
	}
	h := &host{w: w, killed: make(chan struct{}), wire: &wire{Store: w.connect(clock)}}
	store := lease.Store(h.wire)
	if inner, ok := h.wire.Store.(lease.Waiter); ok {
		store = &waiter{wire: h.wire, inner: inner}
	}
	var err error
	h.client, err = lease.New(store, &lease.Options{
		TTL: ttl, Holder: "host" + string(rune('A'+len(w.hosts)%26)), Observer: lease.ObserverFunc(func(lease.Event) {}),
	})
	require.NoError(w.t, err)
	h.job, err = singleton.New(h.client, jobName, o)
	require.NoError(w.t, err)
	w.hosts = append(w.hosts, h)
	return h
}

// close ends all hosts, so that the bubble can prove that nothing runs on.
func (w *world) close() {
	for _, h := range w.hosts {
		_ = h.client.Close(w.t.Context()) // hosts that were killed cannot release
	}
}

// host is a process: a client, a job and the network between them and the service.
type host struct {
	w      *world
	client *lease.Client
	job    *singleton.Job
	wire   *wire
	once   sync.Once
	killed chan struct{}
}

// kill is SIGKILL: nothing is sent any more, and bodies stop where they stand.
func (h *host) kill() {
	h.once.Do(func() {
		h.wire.kill()
		close(h.killed)
	})
}

var errKilled = errors.New("the process was killed")

// deliver runs the job for at with a body that takes d and returns err.
func (h *host) deliver(ctx context.Context, at time.Time, d time.Duration, err error) (singleton.Result, error) {
	return h.job.Run(ctx, at, h.body(d, err))
}

// body obeys its context and writes what it does to the journal.
func (h *host) body(d time.Duration, result error) singleton.Body {
	return func(ctx context.Context, l *lease.Lease) (err error) {
		at, _ := singleton.OccurrenceFromContext(ctx)
		end := h.w.journal.begin(at, l)
		defer func() { end(err == nil) }()
		select {
		case <-h.killed:
			return errKilled
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return result
		}
	}
}

// wire is a store with the network in front of it.
type wire struct {
	lease.Store

	mu   sync.Mutex
	dead bool
	ops  []op
	hook func(ctx context.Context, op string, do func() error) error
}

type op struct {
	name string
	at   time.Time
}

func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
}

// intercept lets f stand between the host and the service; nil ends that.
func (w *wire) intercept(f func(ctx context.Context, op string, do func() error) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook = f
}

// take returns the operations since the last take and forgets them.
func (w *wire) take() []op {
	w.mu.Lock()
	defer w.mu.Unlock()
	ops := w.ops
	w.ops = nil
	return ops
}

func (w *wire) pass(ctx context.Context, name string, do func() error) error {
	w.mu.Lock()
	dead, hook := w.dead, w.hook
	if !dead {
		w.ops = append(w.ops, op{name, time.Now()})
	}
	w.mu.Unlock()
	switch {
	case dead:
		return unavailable(name)
	case hook != nil:
		return hook(ctx, name, do)
	}
	return do()
}

func unavailable(op string) error {
	return &lease.Error{Op: op, Class: lease.ErrUnavailable, Err: errors.New("no route")}
}

func unanswered(op string) error {
	return &lease.Error{Op: op, Class: lease.ErrInDoubt, Err: errors.New("the connection was cut")}
}

func (w *wire) TryAcquire(ctx context.Context, r lease.Request) (g lease.Grant, err error) {
	err = w.pass(ctx, "acquire", func() (err error) { g, err = w.Store.TryAcquire(ctx, r); return err })
	return g, err
}

func (w *wire) Renew(ctx context.Context, g lease.Grant) (next lease.Grant, err error) {
	err = w.pass(ctx, "renew", func() (err error) { next, err = w.Store.Renew(ctx, g); return err })
	return next, err
}

func (w *wire) Release(ctx context.Context, g lease.Grant, f lease.Final) error {
	return w.pass(ctx, "release", func() error { return w.Store.Release(ctx, g, f) })
}

func (w *wire) Inspect(ctx context.Context, name string) (i lease.Info, err error) {
	err = w.pass(ctx, "inspect", func() (err error) { i, err = w.Store.Inspect(ctx, name); return err })
	return i, err
}

func (w *wire) Clock() lease.Clock { return w.Store.(lease.Clocked).Clock() }

func (w *wire) Load(ctx context.Context, key string) (r lease.Record, err error) {
	err = w.pass(ctx, "load", func() (err error) { r, err = w.Store.(lease.Records).Load(ctx, key); return err })
	return r, err
}

func (w *wire) Swap(ctx context.Context, old lease.Record, v []byte, keep time.Duration) (r lease.Record, err error) {
	err = w.pass(ctx, "swap", func() (err error) { r, err = w.Store.(lease.Records).Swap(ctx, old, v, keep); return err })
	return r, err
}

func (w *wire) Scan(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return w.Store.(lease.Records).Scan(ctx, prefix)
}

// waiter is a wire to a service that wakes its waiters.
type waiter struct {
	*wire
	inner lease.Waiter
}

func (w *waiter) Wait(ctx context.Context, h *lease.HeldError) error {
	return w.pass(ctx, "wait", func() error { return w.inner.Wait(ctx, h) })
}

// journal is what the bodies of all hosts did.
type journal struct {
	mu    sync.Mutex
	spans []*span
}

type span struct {
	at         time.Time // the occurrence
	token      lease.Token
	begin, end time.Time
	done       bool // it came to its end without an error
}

func (j *journal) begin(at time.Time, l *lease.Lease) (end func(done bool)) {
	s := &span{at: at, begin: time.Now()}
	if l != nil {
		s.token = l.Token()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.spans = append(j.spans, s)
	return func(done bool) {
		j.mu.Lock()
		defer j.mu.Unlock()
		s.end, s.done = time.Now(), done
	}
}

// occurrences are those whose bodies began, in that order.
func (j *journal) occurrences() []time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	var at []time.Time
	for _, s := range j.spans {
		at = append(at, s.at)
	}
	return at
}

// of are the runs of one occurrence.
func (j *journal) of(at time.Time) []span {
	j.mu.Lock()
	defer j.mu.Unlock()
	var runs []span
	for _, s := range j.spans {
		if s.at.Equal(at) {
			runs = append(runs, *s)
		}
	}
	return runs
}

// check finds bodies that overlap and tokens that do not grow.
func (j *journal) check(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	guarded := slices.DeleteFunc(slices.Clone(j.spans), func(s *span) bool { return s.token == 0 })
	for i := 1; i < len(guarded); i++ {
		last, next := guarded[i-1], guarded[i]
		require.Falsef(t, last.end.IsZero() || last.end.After(next.begin), "%+v overlaps %+v", *last, *next)
		require.Greaterf(t, next.token, last.token, "the token of %+v does not grow after %+v", *next, *last)
	}
}
