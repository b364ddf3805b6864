package election_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

const (
	office = "office"
	ttl    = 6 * time.Second
	poll   = 1500 * time.Millisecond // the longest pause between two looks of a waiter
)

// world is one lock service in virtual time, and the terms that were led.
type world struct {
	t       *testing.T
	slack   time.Duration // how much later than by its TTL a dead lease is free
	connect func() lease.Store
	book    *book
	hosts   []*host
}

// onEveryStore runs a case on every store, each in a bubble of its own.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) (func() lease.Store, time.Duration){
		"memory": memory, "dynamodb": dynamodb,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, book: &book{}}
				w.connect, w.slack = open(t)
				test(t, w)
				w.close()
				w.book.check(t)
			})
		})
	}
}

func memory(*testing.T) (func() lease.Store, time.Duration) {
	s := memlease.NewService()
	return func() lease.Store { return s.Store(nil) }, 0
}

func dynamodb(t *testing.T) (func() lease.Store, time.Duration) {
	const table = "locks"
	sdk := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
	_, err := sdk.CreateTable(t.Context(), dynamolock.CreateTableInput(table))
	require.NoError(t, err)
	return func() lease.Store {
		s, err := dynamolock.New(sdk, table, nil)
		require.NoError(t, err)
		return s
	}, 3 * time.Second
}

// host is a process with a client, a candidate, and a network between it and the service.
type host struct {
	w      *world
	name   string
	wire   *wire
	client *lease.Client
	e      *election.Election

	mu     sync.Mutex
	events []lease.Event
	stop   context.CancelCauseFunc
	ended  chan struct{}
	err    error // of Run; read it after ended
}

// setup is what a host is made with, where the defaults do not do.
type setup struct {
	lease    lease.Options
	election election.Options
}

func (w *world) host(name string, s setup) *host {
	w.t.Helper()
	h := &host{w: w, name: name, wire: &wire{Store: w.connect()}}
	if s.lease.TTL == 0 {
		s.lease.TTL = ttl
	}
	if s.lease.Holder == "" {
		s.lease.Holder = name
	}
	s.lease.Observer = lease.ObserverFunc(h.observe)
	store := lease.Store(h.wire)
	if inner, ok := h.wire.Store.(lease.Waiter); ok {
		store = &waiter{wire: h.wire, inner: inner}
	}
	var err error
	h.client, err = lease.New(store, &s.lease)
	require.NoError(w.t, err)
	h.e, err = election.New(h.client, office, &s.election)
	require.NoError(w.t, err)
	w.hosts = append(w.hosts, h)
	return h
}

func (h *host) observe(e lease.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// count is how often the host was told of kind.
func (h *host) count(kind lease.EventKind) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, e := range h.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// run stands with lead, whose terms are written to the book.
func (h *host) run(lead election.Lead) *host {
	ctx, stop := context.WithCancelCause(h.w.t.Context())
	h.stop, h.ended = stop, make(chan struct{})
	ended := h.ended
	go func() {
		defer close(ended)
		h.err = h.e.Run(ctx, h.w.book.keep(h.name, lead))
	}()
	return h
}

var errStop = errors.New("the process is to stop")

// leave ends Run and returns its error.
func (h *host) leave() error {
	h.stop(errStop)
	<-h.ended
	return h.err
}

// crash cuts the host off for good: nothing that it does has an effect any more.
func (h *host) crash() { h.wire.set(dead) }

// close ends all hosts, so that the bubble can prove that nothing runs on.
func (w *world) close() {
	for _, h := range w.hosts {
		if h.stop != nil {
			_ = h.leave()
		}
	}
	time.Sleep(time.Minute) // a lead that is past its limit may return later
	for _, h := range w.hosts {
		_ = h.client.Close(w.t.Context()) // hosts that crashed cannot release
	}
}

// obey leads until its term ends.
func obey(ctx context.Context, _ *lease.Lease) error {
	<-ctx.Done()
	return ctx.Err()
}

// leads waits until one of hosts leads, and returns it and how long that took.
func leads(t *testing.T, within time.Duration, hosts ...*host) (*host, time.Duration) {
	t.Helper()
	began := time.Now()
	for {
		for _, h := range hosts {
			if h.e.Status().State == election.Leading {
				return h, time.Since(began)
			}
		}
		require.LessOrEqual(t, time.Since(began), within, "nobody leads")
		time.Sleep(10 * time.Millisecond)
	}
}

// The ways a network can be.
const (
	open  = iota
	dead  // every request fails at once
	black // no request arrives and none is answered
	mute  // requests arrive, answers do not
)

// wire is a store with a network in front of it.
type wire struct {
	lease.Store

	mu   sync.Mutex
	mode int
	ops  map[string]int
	hook func(op string) int // chooses the mode of each request
}

func (w *wire) set(mode int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mode = mode
}

func (w *wire) is() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mode
}

func (w *wire) each(hook func(op string) int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook = hook
}

// take returns how many requests there were since the last take, by operation.
func (w *wire) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	ops := w.ops
	w.ops = nil
	return ops
}

func (w *wire) pass(ctx context.Context, op string, do func() error) error {
	w.mu.Lock()
	mode := w.mode
	if w.hook != nil && mode == open {
		mode = w.hook(op)
	}
	if w.ops == nil {
		w.ops = map[string]int{}
	}
	w.ops[op]++
	w.mu.Unlock()
	switch mode {
	case dead:
		return &lease.Error{Op: op, Class: lease.ErrUnavailable, Err: errors.New("no route")}
	case mute:
		_ = do() // nobody hears the answer
	case black:
	default:
		return do()
	}
	<-ctx.Done()
	return &lease.Error{Op: op, Class: lease.ErrInDoubt, Err: fmt.Errorf("not answered: %w", lease.Cause(ctx))}
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

// waiter is a wire to a service that wakes its waiters.
type waiter struct {
	*wire
	inner lease.Waiter
}

func (w *waiter) Wait(ctx context.Context, h *lease.HeldError) error {
	return w.pass(ctx, "wait", func() error { return w.inner.Wait(ctx, h) })
}
