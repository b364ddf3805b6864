package lease_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

const ttl = 6 * time.Second

// hooked is a store in memory whose calls a test can replace.
type hooked struct {
	*memlease.Store
	acquire func(context.Context, lease.Request) (lease.Grant, error)
	renew   func(context.Context, lease.Grant) (lease.Grant, error)
	save    func(context.Context, lease.Grant, []byte) (lease.Grant, error)
	close   func(context.Context) error
	closed  int
}

func (s *hooked) TryAcquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	if s.acquire != nil {
		return s.acquire(ctx, r)
	}
	return s.Store.TryAcquire(ctx, r)
}

func (s *hooked) Renew(ctx context.Context, g lease.Grant) (lease.Grant, error) {
	if s.renew != nil {
		return s.renew(ctx, g)
	}
	return s.Store.Renew(ctx, g)
}

func (s *hooked) Save(ctx context.Context, g lease.Grant, v []byte) (lease.Grant, error) {
	if s.save != nil {
		return s.save(ctx, g, v)
	}
	return s.Store.Save(ctx, g, v)
}

func (s *hooked) Close(ctx context.Context) error {
	s.closed++
	if s.close != nil {
		return s.close(ctx)
	}
	return s.Store.Close(ctx)
}

// world is a service in memory with one host.
type world struct {
	t       *testing.T
	service *memlease.Service
	clock   *leasetest.Clock
	faults  *leasetest.Faults
	store   *hooked

	mu     sync.Mutex
	events []lease.Event
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, service: memlease.NewService(), clock: leasetest.NewClock(), faults: leasetest.NewFaults()}
	w.store = &hooked{Store: w.service.Store(&memlease.Options{Clock: w.clock.Now, Intercept: w.faults.Intercept})}
	return w
}

// Observe implements lease.Observer.
func (w *world) Observe(e lease.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// told are the events of a kind so far.
func (w *world) told(k lease.EventKind) []lease.Event {
	synctest.Wait() // losses are told on goroutines of their own
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []lease.Event
	for _, e := range w.events {
		if e.Kind == k {
			events = append(events, e)
		}
	}
	return events
}

// client makes a client of the host. It is closed after the test.
func (w *world) client(o lease.Options) *lease.Client {
	w.t.Helper()
	if o.TTL == 0 {
		o.TTL = ttl
	}
	o.Observer = w
	c, err := lease.New(w.store, &o)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		w.faults.Heal()
		if err := c.Close(context.Background()); err != nil {
			w.t.Logf("close: %v", err)
		}
		w.faults.Settle()
	})
	return c
}

// acquire takes name, which must be free.
func (w *world) acquire(c *lease.Client, name string) *lease.Lease {
	w.t.Helper()
	l, err := c.TryAcquire(w.t.Context(), name)
	require.NoError(w.t, err)
	return l
}

// state is that of a lock as another host sees it.
func (w *world) state(name string) lease.State {
	w.t.Helper()
	info, err := w.service.Store(nil).Inspect(w.t.Context(), name)
	require.NoError(w.t, err)
	return info.State
}

// classes are all classes of errors.
var classes = []error{
	lease.ErrHeld, lease.ErrPassed, lease.ErrLost, lease.ErrReleased, lease.ErrStale, lease.ErrConflict, lease.ErrInvalid,
	lease.ErrDenied, lease.ErrMisconfigured, lease.ErrUnavailable, lease.ErrInDoubt, lease.ErrClosed,
}

// requireClass wants err to match class and no other.
func requireClass(t *testing.T, class, err error) {
	t.Helper()
	for _, c := range classes {
		if c == class { //nolint:errorlint // the classes themselves
			require.ErrorIs(t, err, c)
		} else {
			require.NotErrorIs(t, err, c)
		}
	}
}
