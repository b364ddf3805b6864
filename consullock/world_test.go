package consullock_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// world is a Consul for one case: the fake, or the agent of all tests.
type world struct {
	config  func(wrap func(http.RoundTripper) http.RoundTripper) *api.Config
	prefix  string
	root    *api.Client // may do everything
	virtual bool
}

// onEach runs a case in virtual time on the fake, and in real time on an agent if that is asked for.
func onEach(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newService(consulfake.Options{})
			root, err := api.NewClient(s.config(nil))
			require.NoError(t, err)
			test(t, &world{s.config, "cloudlease/", root, true})
		})
	})
	if !engines() {
		return
	}
	t.Run("agent", func(t *testing.T) {
		t.Parallel()
		a, err := shared()
		require.NoError(t, err)
		b := newReal(t, a, consullock.Options{})
		cfg := a.config(t, nil)
		cfg.Token = rootToken
		root, err := api.NewClient(cfg)
		require.NoError(t, err)
		test(t, &world{b.config, b.opt.Prefix, root, false})
	})
}

func (w *world) store(t *testing.T, o consullock.Options, wrap func(http.RoundTripper) http.RoundTripper) *consullock.Store {
	t.Helper()
	o.Prefix = w.prefix
	return newStore(t, w.config(wrap), o)
}

// client makes a client and its store. It is closed after the case.
func (w *world) client(t *testing.T, o lease.Options, wrap func(http.RoundTripper) http.RoundTripper) *lease.Client {
	t.Helper()
	return w.clientWith(t, o, consullock.Options{}, wrap)
}

func (w *world) clientWith(t *testing.T, o lease.Options, so consullock.Options, wrap func(http.RoundTripper) http.RoundTripper) *lease.Client {
	t.Helper()
	c := clientOf(t, w.store(t, so, wrap), &o)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil && !errors.Is(err, lease.ErrLost) {
			require.NoError(t, err)
		}
	})
	return c
}

// session is the session that holds a lock.
func (w *world) session(t *testing.T, name string) string {
	t.Helper()
	pair, _, err := w.root.KV().Get(w.key(name), nil)
	require.NoError(t, err)
	require.NotNil(t, pair)
	require.NotEmpty(t, pair.Session)
	return pair.Session
}

func (w *world) key(name string) string { return w.prefix + "locks/" + name + "/lock" }

// awaitLoss wants l lost within d, and says how long it took.
func awaitLoss(t *testing.T, l *lease.Lease, d time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	select {
	case <-l.Done():
	case <-time.After(d):
		require.FailNow(t, "the loss did not come in time", "after %v", d)
	}
	require.ErrorIs(t, l.Err(), lease.ErrLost)
	return time.Since(began)
}

func acquire(t *testing.T, c *lease.Client, name string) *lease.Lease {
	t.Helper()
	l, err := c.TryAcquire(t.Context(), name)
	require.NoError(t, err)
	return l
}

// hole swallows requests while it is open.
type hole struct {
	mu   sync.Mutex
	open func(*http.Request) bool
}

func (h *hole) set(open func(*http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = open
}

func all(*http.Request) bool { return true }

func (h *hole) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		h.mu.Lock()
		swallow := h.open != nil && h.open(r)
		h.mu.Unlock()
		if swallow {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return next.RoundTrip(r)
	})
}

// slowdown delays answers.
type slowdown struct {
	mu sync.Mutex
	by time.Duration
}

func (s *slowdown) set(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by = by
}

func (s *slowdown) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		s.mu.Lock()
		by := s.by
		s.mu.Unlock()
		resp, err := next.RoundTrip(r.Clone(context.WithoutCancel(r.Context())))
		if err != nil || by == 0 {
			return resp, err
		}
		select {
		case <-time.After(by):
			return resp, nil
		case <-r.Context().Done():
			_ = resp.Body.Close()
			return nil, r.Context().Err()
		}
	})
}

// requireClass wants class to be that of err itself, not of what it wraps.
func requireClass(t require.TestingT, err, class error) {
	typed, ok := errors.AsType[*lease.Error](err)
	require.True(t, ok, "%T: %v", err, err)
	require.ErrorIs(t, typed.Class, class, "%v", err)
}

func (w *world) pair(key, value string) *api.KVPair {
	return &api.KVPair{Key: w.prefix + key, Value: []byte(value)}
}
