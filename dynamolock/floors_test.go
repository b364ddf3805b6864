package dynamolock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

// TestFloors counts what goes over the wire: R a read, W a write.
func TestFloors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		a, b := s.host(t, nil), s.host(t, nil)
		ca, cb := a.client(t, nil), b.client(t, nil)
		acquire := func(c *lease.Client, name string) *lease.Lease {
			l, err := c.TryAcquire(t.Context(), name)
			require.NoError(t, err)
			return l
		}

		l := acquire(ca, "x")
		require.Equal(t, "RW", a.sent.take(), "cold, first ever")
		_, err := cb.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, lease.ErrHeld)
		require.Equal(t, "R", b.sent.take(), "cold, fail fast on held")
		_, err = cb.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, lease.ErrHeld)
		require.Equal(t, "W", b.sent.take(), "warm, fail fast on held")
		require.NoError(t, l.Release(t.Context()))
		require.Equal(t, "W", a.sent.take(), "release")

		l = acquire(ca, "x")
		require.Equal(t, "W", a.sent.take(), "warm, again at once")
		require.NoError(t, l.Release(t.Context()))
		a.sent.take()
		time.Sleep(10 * time.Second)
		l = acquire(cb, "x")
		require.Equal(t, "W", b.sent.take(), "warm, free, last held by another")

		time.Sleep(12 * time.Second)
		require.Equal(t, "W", b.sent.take(), "one renewal in a little more than TTL/3")
		require.NoError(t, l.Save(t.Context(), []byte("v")))
		require.Equal(t, "W", b.sent.take(), "save")
		require.NoError(t, l.Release(t.Context()))
		b.sent.take()

		l = acquire(ca, "new")
		require.Equal(t, "WW", a.sent.take(), "warm, first ever")
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, ca.Close(t.Context()))
		require.NoError(t, cb.Close(t.Context()))
	})
}

// crash acquires name and is never heard of again.
func crash(t *testing.T, s *service, name string, ttl time.Duration) lease.Grant {
	t.Helper()
	h := s.host(t, nil)
	g, err := h.TryAcquire(t.Context(), lease.Request{Name: name, Holder: "crashed", TTL: ttl, Attempt: "a", Since: lease.SystemClock()})
	require.NoError(t, err)
	return g
}

func TestFloorsOfADeadLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		g := crash(t, s, "x", 3*time.Second)
		warm := s.host(t, nil)
		c := warm.client(t, nil)
		_, err := c.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, lease.ErrHeld)
		warm.sent.take()
		time.Sleep(6 * time.Second)

		cold := s.host(t, nil)
		l, err := cold.client(t, nil).TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "RW", cold.sent.take(), "cold, dead")
		require.Greater(t, l.Token(), g.Token)
		require.NoError(t, l.Release(t.Context()))

		crash(t, s, "y", 3*time.Second)
		time.Sleep(6 * time.Second)
		l, err = c.TryAcquire(t.Context(), "y")
		require.NoError(t, err)
		require.Equal(t, "WW", warm.sent.take(), "warm, dead, seen first by failing")
		require.NoError(t, l.Release(t.Context()))

		crash(t, s, "z", 3*time.Second)
		_, err = c.TryAcquire(t.Context(), "z")
		require.ErrorIs(t, err, lease.ErrHeld)
		warm.sent.take()
		time.Sleep(6 * time.Second)
		l, err = c.TryAcquire(t.Context(), "z")
		require.NoError(t, err)
		require.Equal(t, "W", warm.sent.take(), "warm, dead, seen before")
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}

func TestFloorsOfAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		a, b := s.host(t, nil), s.host(t, nil)
		ca, cb := a.client(t, nil), b.client(t, nil)
		l, err := ca.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		go func() {
			time.Sleep(20 * time.Second)
			_ = l.Release(t.Context())
		}()
		began := time.Now()
		m, err := cb.Acquire(t.Context(), "x")
		require.NoError(t, err)
		waited := time.Since(began) - 20*time.Second
		require.Less(t, waited, 1500*time.Millisecond)
		sent := b.sent.take()
		require.Regexp(t, `^RR+W$`, sent, "a waiter reads, and writes once")
		require.Less(t, len(sent), 2*20, "at most two requests a second")
		require.NoError(t, m.Release(t.Context()))
		require.NoError(t, ca.Close(t.Context()))
		require.NoError(t, cb.Close(t.Context()))
	})
}
