package memlease_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// backend is a service in memory for the suites.
type backend struct{ s *memlease.Service }

func newBackend(*testing.T) backend { return backend{memlease.NewService()} }

func (b backend) store(h leasetest.Host) *memlease.Store {
	return b.s.Store(&memlease.Options{Clock: h.Clock, Intercept: h.Faults.Intercept})
}

func (b backend) Store(_ *testing.T, h leasetest.Host) lease.Store { return b.store(h) }

func (b backend) Guard(_ *testing.T, h leasetest.Host) fence.Guard { return b.store(h).Guard() }

func (b backend) Delete(_ *testing.T, name string) { b.s.Delete(name) }

func TestStore(t *testing.T) {
	leasetest.TestStore(t, leasetest.Harness{
		New:     func(t *testing.T) leasetest.Backend { t.Helper(); return newBackend(t) },
		Virtual: true,
	})
}

func TestGuard(t *testing.T) {
	leasetest.TestGuard(t, leasetest.GuardHarness{
		New:     func(t *testing.T) leasetest.Guarded { t.Helper(); return newBackend(t) },
		Virtual: true,
	})
}

// TestSimulation tries the store by chance.
func TestSimulation(t *testing.T) {
	leasetest.Simulate(t, leasetest.Harness{
		New:     func(t *testing.T) leasetest.Backend { t.Helper(); return newBackend(t) },
		Virtual: true,
	}, leasetest.Simulation{})
}

// unguarded is a backend without a guard.
type unguarded struct{ b backend }

func (u unguarded) Store(t *testing.T, h leasetest.Host) lease.Store {
	t.Helper()
	return u.b.Store(t, h)
}

func (u unguarded) Delete(t *testing.T, name string) { t.Helper(); u.b.Delete(t, name) }

// TestStoreWithoutGuard runs the suite with the guard that it brings for such backends.
func TestStoreWithoutGuard(t *testing.T) {
	leasetest.TestStore(t, leasetest.Harness{
		New:     func(t *testing.T) leasetest.Backend { t.Helper(); return unguarded{newBackend(t)} },
		Virtual: true, TTL: 3 * time.Second, Rounds: 5,
	})
}

func request(name, attempt string) lease.Request {
	return lease.Request{Name: name, Holder: "h", TTL: time.Minute, Attempt: attempt}
}

func TestTokensEndWithoutWrapping(t *testing.T) {
	service := memlease.NewService()
	s := service.Store(nil)
	service.SetToken(lease.MaxToken - 1)
	g, err := s.TryAcquire(t.Context(), request("x", "1"))
	require.NoError(t, err)
	require.Equal(t, lease.MaxToken, g.Token)
	for _, name := range []string{"x", "y"} {
		require.NoError(t, errors.Join(s.Release(t.Context(), g, lease.Final{})))
		_, err = s.TryAcquire(t.Context(), request(name, "2"))
		require.ErrorIs(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "tokens are used up")
	}
	info, err := s.Inspect(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, lease.Free, info.State)
	require.Equal(t, lease.MaxToken, info.Token)
}

func TestInterceptorsErrors(t *testing.T) {
	loss := &lease.Error{Op: "hold", Store: "another", Class: lease.ErrLost}
	for name, c := range map[string]struct{ err, class error }{
		"its own":                  {io.ErrUnexpectedEOF, lease.ErrInDoubt},
		"with a class":             {&lease.Error{Class: lease.ErrUnavailable, Err: io.ErrUnexpectedEOF}, lease.ErrUnavailable},
		"wrapping another's class": {errors.Join(io.ErrUnexpectedEOF, loss), lease.ErrInDoubt},
	} {
		t.Run(name, func(t *testing.T) {
			s := memlease.NewService().Store(&memlease.Options{
				Intercept: func(_ context.Context, _ string, do func() error) error {
					return errors.Join(do(), c.err)
				},
			})
			if _, ok := c.err.(*lease.Error); ok { //nolint:errorlint // joined it would not be the interceptor's own
				s = memlease.NewService().Store(&memlease.Options{
					Intercept: func(context.Context, string, func() error) error { return c.err },
				})
			}
			_, err := s.TryAcquire(t.Context(), request("x", "1"))
			typed, ok := errors.AsType[*lease.Error](err)
			require.True(t, ok, "%T: %v", err, err)
			require.Equal(t, c.class, typed.Class)
			require.Equal(t, "acquire", typed.Op)
			require.Equal(t, "memory", typed.Store)
			require.Equal(t, "x", typed.Name)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		})
	}
}

func TestInterceptorMayRepeatARequest(t *testing.T) {
	s := memlease.NewService().Store(&memlease.Options{
		Intercept: func(_ context.Context, _ string, do func() error) error {
			first := do()
			_ = do() // delivered twice: its answer goes nowhere
			return first
		},
	})
	g, err := s.TryAcquire(t.Context(), request("x", "1"))
	require.NoError(t, err)
	_, err = s.TryAcquire(t.Context(), request("x", "2"))
	require.ErrorIs(t, err, lease.ErrHeld)
	_, err = s.Renew(t.Context(), g)
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context(), g, lease.Final{}))
	rec, err := s.Swap(t.Context(), lease.Record{Key: "r"}, []byte("v"), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, rec.Version)
}

func TestValuesAreCopies(t *testing.T) {
	s := memlease.New()
	g, err := s.TryAcquire(t.Context(), request("x", "1"))
	require.NoError(t, err)
	v := []byte("value")
	_, err = s.Save(t.Context(), g, v)
	require.NoError(t, err)
	v[0] = 'X'
	info, err := s.Inspect(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, "value", string(info.Value))
	info.Value[0] = 'X'
	require.NoError(t, s.Release(t.Context(), g, lease.Final{}))
	g, err = s.TryAcquire(t.Context(), request("x", "2"))
	require.NoError(t, err)
	require.Equal(t, "value", string(g.Value))

	rec, err := s.Swap(t.Context(), lease.Record{Key: "r"}, v, 0)
	require.NoError(t, err)
	v[0], rec.Value[0] = 'Y', 'Y'
	rec, err = s.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, "Xalue", string(rec.Value))
	for rec, err := range s.Scan(t.Context(), "") {
		require.NoError(t, err)
		rec.Value[0] = 'Z'
	}
	rec, err = s.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, "Xalue", string(rec.Value))
}

func TestStoresOfOneServiceShareItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := memlease.NewService()
		a, b := service.Store(nil), service.Store(nil)
		_, err := a.TryAcquire(t.Context(), request("x", "1"))
		require.NoError(t, err)
		_, err = b.TryAcquire(t.Context(), request("x", "2"))
		require.EqualError(t, err, `"x" is held by h with token 1, for another 1m0s if not renewed`)
		_, err = memlease.New().TryAcquire(t.Context(), request("x", "2"))
		require.NoError(t, err, "a store of a service of its own")
		time.Sleep(time.Minute)
		_, err = b.TryAcquire(t.Context(), request("x", "2"))
		require.NoError(t, err)
	})
}

// TestLateSave: a Save that was given up and arrives when the next one has does not bring its value back.
func TestLateSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := leasetest.NewFaults()
		st := memlease.NewService().Store(&memlease.Options{Intercept: f.Intercept})
		g, err := st.TryAcquire(t.Context(), request("x", "attempt"))
		require.NoError(t, err)
		late := f.Add(leasetest.Rule{Op: "save", Kind: leasetest.DelayBefore, Delay: 2 * time.Second, Nth: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = st.Save(ctx, g, []byte("old"))
		require.ErrorIs(t, err, lease.ErrInDoubt)
		late.Stop()
		_, err = st.Save(t.Context(), g, []byte("new"))
		require.NoError(t, err)
		f.Settle()
		info, err := st.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "new", string(info.Value))
	})
}
