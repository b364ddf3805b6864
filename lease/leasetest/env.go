package leasetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

// env is what a subtest works with: one service and its hosts. It watches every call for what must never happen.
type env struct {
	*testing.T
	Harness
	backend Backend
	history *History
	hosts   []*host
	guarded *plainData
	books   *books // nil but in a simulation

	mu      sync.Mutex
	log     bytes.Buffer
	secrets map[string]bool
	texts   []string
}

func newEnv(t *testing.T, h Harness) *env {
	t.Helper()
	e := &env{T: t, Harness: h, history: NewHistory(), guarded: newPlainData(), secrets: map[string]bool{}}
	t.Cleanup(e.finish) // before New registers its own, so that it runs after what subtests register
	e.backend = h.New(t)
	t.Cleanup(e.closeHosts)
	return e
}

// closeHosts heals the network and closes what a subtest left open.
func (e *env) closeHosts() {
	for _, h := range e.hosts {
		h.faults.Heal()
	}
	for _, h := range e.hosts {
		closeAll := h.store.Close
		if h.root != nil {
			closeAll = h.root.Close
		}
		if err := closeAll(context.Background()); err != nil && !errors.Is(err, lease.ErrLost) {
			e.Errorf("close what %s has: %v", h.name, err)
		}
		h.faults.Settle()
	}
	if b, ok := e.backend.(Tidy); ok {
		if left := b.Leftovers(); len(left) > 0 {
			e.Errorf("the stores that were closed have left: %q", left)
		}
	}
}

// finish reports what was seen during the whole subtest.
func (e *env) finish() {
	e.Helper()
	for _, h := range e.hosts {
		h.faults.CheckFired(e)
	}
	e.history.Check(e)
	e.books.finish()
	e.mu.Lock()
	defer e.mu.Unlock()
	text := e.log.String() + strings.Join(e.texts, "\n")
	for s := range e.secrets {
		if strings.Contains(text, s) {
			e.Errorf("an error or a log entry shows the secret %q of an attempt or a grant", s)
		}
	}
}

// takeover is the longest that a dead lease can last after its last renewal was sent.
func (e *env) takeover() time.Duration { return 2*e.TTL + 3*time.Second + e.Slack }

// saw implements witness.
func (e *env) saw(c storeCall) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range []string{c.grant.Attempt, c.grant.Proof} {
		if len(s) >= 8 {
			e.secrets[s] = true
		}
	}
	if c.err == nil {
		return
	}
	e.texts = append(e.texts, c.err.Error())
	if !classified(c.err) {
		e.Errorf("%s %q: the error has no class, or several: %T: %v", c.op, c.name, c.err, c.err)
	}
}

// classes are the classes of errors that a store's calls return.
var classes = []error{
	lease.ErrHeld, lease.ErrPassed, lease.ErrLost, lease.ErrReleased, lease.ErrStale, lease.ErrConflict, lease.ErrInvalid,
	lease.ErrDenied, lease.ErrMisconfigured, lease.ErrUnavailable, lease.ErrInDoubt, lease.ErrClosed,
}

// classified tells whether err has exactly one class. The cause of a context that has ended must not lend it a second one.
func classified(err error) bool {
	n := 0
	for _, class := range classes {
		if errors.Is(err, class) {
			n++
		}
	}
	return n == 1
}

// host is a machine with one store.
type host struct {
	e      *env
	name   string
	clock  *Clock
	faults *Faults
	store  lease.Store
	root   *lease.Client // the first client: it owns the store

	mu      sync.Mutex
	calls   []storeCall
	events  []seen
	stepped time.Time     // when its wall clock was last set by chance
	sent    lease.Reading // of its clock when the last request was sent, in a simulation
}

// seen is an event and when it came.
type seen struct {
	lease.Event
	at time.Time
}

// host makes a host whose store has spoken to the service before, so that what it learns once costs no request later.
func (e *env) host(name string) *host {
	e.Helper()
	h := e.coldHost(name)
	_, err := h.store.Inspect(e.Context(), "no lock")
	require.NoError(e, err)
	return h
}

func (e *env) coldHost(name string) *host {
	e.Helper()
	h := &host{e: e, name: name, clock: NewClock(), faults: NewFaults()}
	if e.books != nil {
		h.faults.number, h.faults.onSend = len(e.hosts)+1, h.sends
	}
	h.store = annotateStore(e.backend.Store(e.T, Host{Name: name, Clock: h.clock.Now, Faults: h.faults}), h)
	e.hosts = append(e.hosts, h)
	return h
}

// begins implements witness.
func (h *host) begins(c storeCall) { h.e.books.begins(h, c) }

// turn is a moment of the host's own: several that are told one instant do not act at one, which could not be repeated.
func (h *host) turn() time.Duration { return time.Duration(h.faults.number) * 10 * time.Microsecond }

// sends takes note that a request is sent.
func (h *host) sends() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = h.clock.Now()
}

// lastSent is what the host's clock showed when its last request was sent.
func (h *host) lastSent() lease.Reading {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent
}

// waited implements witness.
func (h *host) waited() { time.Sleep(h.turn()) }

// saw implements witness.
func (h *host) saw(c storeCall) {
	h.e.saw(c)
	if held, ok := errors.AsType[*lease.HeldError](c.err); ok && held.RetryAfter > 0 {
		held.RetryAfter += h.turn()
	}
	h.mu.Lock()
	h.calls = append(h.calls, c)
	h.mu.Unlock()
	h.e.books.saw(h, c)
}

// Observe implements lease.Observer.
func (h *host) Observe(ev lease.Event) {
	h.mu.Lock()
	h.events = append(h.events, seen{ev, time.Now()})
	h.mu.Unlock()
	h.e.books.observed(h, ev)
	h.e.mu.Lock()
	defer h.e.mu.Unlock()
	log := slog.New(slog.NewTextHandler(&h.e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	lease.LogObserver(log).Observe(ev)
}

// seen are the events of a kind so far.
func (h *host) seen(k lease.EventKind) []seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	var events []seen
	for _, ev := range h.events {
		if ev.Kind == k {
			events = append(events, ev)
		}
	}
	return events
}

// lastGood is when the last successful call that gave or renewed a grant of name began: trust counts from there.
func (h *host) lastGood(name string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var last time.Time
	for _, c := range h.calls {
		gives := c.op == "acquire" || c.op == "renew" || c.op == "save"
		if gives && c.name == name && c.err == nil && c.began.After(last) {
			last = c.began
		}
	}
	return last
}

// client makes a client of the host's store with the harness's TTL. It is closed after the subtest.
func (h *host) client() *lease.Client {
	h.e.Helper()
	return h.clientWith(lease.Options{})
}

func (h *host) clientWith(o lease.Options) *lease.Client {
	h.e.Helper()
	if o.TTL == 0 {
		o.TTL = h.e.TTL
	}
	o.Holder, o.Observer = h.name, h
	if h.root != nil {
		c, err := h.root.With(o)
		require.NoError(h.e, err)
		return c
	}
	c, err := lease.New(h.store, &o)
	require.NoError(h.e, err)
	h.root = c
	return c
}

// attempt is a new attempt of the host on name.
func (h *host) attempt(name string) lease.Request {
	return lease.Request{
		Name: name, Holder: h.name, TTL: h.e.TTL, Attempt: newID(), Since: h.clock.Now(),
	}
}

// take acquires name, which must be free.
func (h *host) take(name string) lease.Grant {
	h.e.Helper()
	g, err := h.store.TryAcquire(h.e.Context(), h.attempt(name))
	require.NoError(h.e, err)
	h.e.sane(h.attempt(name), g)
	h.e.history.Hold(name, h.name, g.Token, func() bool { return h.trust(g) > 0 })
	return g
}

// free releases g, which must still be the lock's grant.
func (h *host) free(g lease.Grant) {
	h.e.Helper()
	h.e.history.Release(g.Name, g.Token)
	require.NoError(h.e, h.store.Release(h.e.Context(), g, lease.Final{}))
}

// touch makes a free record of name, so that what only the first acquire of a name costs is paid.
func (h *host) touch(name string) { h.e.Helper(); h.free(h.take(name)) }

// trust is how long g can still be trusted, margins aside.
func (h *host) trust(g lease.Grant) time.Duration { return g.Trust - h.clock.Now().Fast(g.Sent) }

// inspect describes name as the host sees it.
func (h *host) inspect(name string) lease.Info {
	h.e.Helper()
	info, err := h.store.Inspect(h.e.Context(), name)
	require.NoError(h.e, err)
	require.Equal(h.e, name, info.Name)
	return info
}

// sane checks what holds for every grant.
func (e *env) sane(r lease.Request, g lease.Grant) {
	e.Helper()
	require.Positive(e, g.Token)
	require.LessOrEqual(e, g.Token, lease.MaxToken)
	require.Equal(e, r.Name, g.Name)
	require.Equal(e, r.Holder, g.Holder)
	require.Equal(e, r.TTL, g.TTL)
	require.Positive(e, g.Trust)
	require.LessOrEqual(e, g.Trust, r.TTL)
}

// eventually waits at most d for ok, in steps that a service can bear.
func (e *env) eventually(d time.Duration, ok func() bool, format string, args ...any) {
	e.Helper()
	step := min(max(d/60, 10*time.Millisecond), 250*time.Millisecond)
	for end := time.Now().Add(d); !ok(); time.Sleep(step) {
		if time.Now().After(end) {
			require.FailNow(e, fmt.Sprintf(format, args...), "after %v", d)
		}
	}
}
