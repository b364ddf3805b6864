package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// TestLateSuccessDoesNotRevive: the store ignores its context and answers a renewal when the lease is long over.
func TestLateSuccessDoesNotRevive(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.store.renew = func(ctx context.Context, g lease.Grant) (lease.Grant, error) {
			time.Sleep(2 * ttl)
			g, err := w.store.Store.Renew(context.WithoutCancel(ctx), g)
			g.Sent = w.clock.Now() // and says that it is fresh
			return g, err
		}
		c := w.client(lease.Options{})
		l := w.acquire(c, "x")
		began := time.Now()
		<-l.Done()
		require.Equal(t, ttl-c.Options().Margin, time.Since(began))
		time.Sleep(3 * ttl)
		requireClass(t, lease.ErrLost, l.Err())
		require.Len(t, w.told(lease.Lost), 1)
		require.Empty(t, w.told(lease.Renewed))
		require.Negative(t, time.Until(l.Deadline()))
	})
}

// TestPauseBeforeARenewal: the process wakes after its deadline, and the renewal runs before any timer or look at the clock.
func TestPauseBeforeARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.store.renew = func(ctx context.Context, g lease.Grant) (lease.Grant, error) {
			w.clock.StepWall(ttl) // the pause
			return w.store.Store.Renew(ctx, g)
		}
		l := w.acquire(w.client(lease.Options{}), "x")
		for len(w.faults.Calls("renew")) == 0 {
			time.Sleep(time.Millisecond)
		}
		requireClass(t, lease.ErrLost, l.Err())
		require.Empty(t, w.told(lease.Renewed), "a lost lease was not renewed")
		require.Len(t, w.told(lease.Lost), 1)
	})
}

func TestErrReadsTheClocks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{}), "x")
		ctx, cancel := l.Context(t.Context())
		defer cancel()
		require.NoError(t, l.Err())
		w.clock.FreezeMono(true)
		w.clock.StepWall(ttl)
		requireClass(t, lease.ErrLost, l.Err())
		require.Error(t, ctx.Err(), "all that waits is told before Err returns")
		select {
		case <-l.Done():
		default:
			t.Error("the lease is lost and its channel is open")
		}
	})
}

func TestTrustEndsByTheClockOnWhichMoreTimePassed(t *testing.T) {
	for name, step := range map[string]func(*leasetest.Clock){
		"wall stands still":      func(c *leasetest.Clock) { c.FreezeWall(true) },
		"wall is set back":       func(c *leasetest.Clock) { c.StepWall(-time.Hour) },
		"monotonic stands still": func(c *leasetest.Clock) { c.FreezeMono(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c := w.client(lease.Options{})
				l := w.acquire(c, "x")
				began := time.Now()
				step(w.clock)
				w.faults.Add(leasetest.Rule{Kind: leasetest.BlackHole})
				<-l.Done()
				require.Equal(t, ttl-c.Options().Margin, time.Since(began))
			})
		})
	}
}

func TestAnOlderPromiseThatReachesFurtherHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.store.renew = func(ctx context.Context, g lease.Grant) (lease.Grant, error) {
			g, err := w.store.Store.Renew(ctx, g)
			g.Trust = time.Second
			return g, err
		}
		c := w.client(lease.Options{})
		l := w.acquire(c, "x")
		before := l.Deadline()
		for len(w.told(lease.Renewed)) == 0 {
			time.Sleep(time.Millisecond)
		}
		require.True(t, before.Equal(l.Deadline()), "a renewal has shortened the lease: %v, %v", before, l.Deadline())
	})
}

func TestJeopardyIsToldOnceBeforeALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		l := w.acquire(c, "x")
		time.Sleep(3 * ttl)
		require.Empty(t, w.told(lease.Jeopardy))
		out := w.faults.Add(leasetest.Rule{Kind: leasetest.Fail, Failure: leasetest.Throttled, Op: "renew"})
		for len(w.told(lease.Jeopardy)) == 0 {
			time.Sleep(time.Millisecond)
		}
		third := (ttl - c.Options().Margin) / 3
		require.NoError(t, l.Err())
		require.InDelta(t, third, time.Until(l.Deadline()), float64(10*time.Millisecond))
		require.InDelta(t, third, w.told(lease.Jeopardy)[0].Took, float64(10*time.Millisecond))
		require.ErrorIs(t, w.told(lease.Jeopardy)[0].Err, lease.ErrUnavailable)
		out.Stop()
		time.Sleep(2 * ttl)
		require.Len(t, w.told(lease.Jeopardy), 1)
		require.NoError(t, l.Err())
		w.faults.Add(leasetest.Rule{Kind: leasetest.BlackHole})
		<-l.Done()
		require.Len(t, w.told(lease.Jeopardy), 2, "it is told again after a good renewal")
	})
}

func TestLossSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		fault leasetest.Rule
		want  string
	}{
		"failing": {leasetest.Rule{Kind: leasetest.Fail, Failure: leasetest.Throttled}, "the last try: store unavailable: throttled"},
		"hanging": {leasetest.Rule{Kind: leasetest.BlackHole}, "not renewed before its deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				l := w.acquire(w.client(lease.Options{}), "x")
				w.faults.Add(c.fault)
				<-l.Done()
				requireClass(t, lease.ErrLost, l.Err())
				require.ErrorContains(t, l.Err(), c.want)
				require.ErrorContains(t, l.Err(), `hold "x" on memory: lease lost`)
				require.ErrorContains(t, l.Err(), "a fence refuses writes with token 1")
				require.Equal(t, l.Err(), w.told(lease.Lost)[0].Err)
			})
		})
	}
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{}), "x")
		w.service.Delete("x")
		<-l.Done()
		requireClass(t, lease.ErrLost, l.Err())
		require.ErrorContains(t, l.Err(), "it is another's or nobody's now")
	})
}

func TestStuckHolders(t *testing.T) {
	for name, c := range map[string]struct {
		o    lease.Options
		want string
		last time.Duration // good until then
	}{
		"hold":     {lease.Options{MaxHold: 2 * ttl}, "held for", 2 * ttl},
		"progress": {lease.Options{Progress: ttl}, "no progress for", ttl},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				l := w.acquire(w.client(c.o), "x")
				began := time.Now()
				<-l.Done()
				requireClass(t, lease.ErrLost, l.Err())
				require.ErrorContains(t, l.Err(), c.want)
				require.GreaterOrEqual(t, time.Since(began), c.last)
				require.LessOrEqual(t, time.Since(began), c.last+ttl)
			})
		})
	}
}

func TestProgressKeepsTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{Progress: ttl}), "x")
		for range 20 {
			time.Sleep(ttl / 2)
			l.Progress()
			require.NoError(t, l.Err())
		}
		time.Sleep(ttl + ttl/4) // it stops for a while
		require.NoError(t, l.Err())
		l.Progress()
		time.Sleep(ttl)
		require.NoError(t, l.Err(), "a holder that makes progress again is renewed again")
		require.NoError(t, l.Release(t.Context()))
	})
}

func TestStoreThatVouchesForLess(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		shorten := func(g lease.Grant, err error) (lease.Grant, error) {
			g.Trust = ttl / 3
			return g, err
		}
		w.store.acquire = func(ctx context.Context, r lease.Request) (lease.Grant, error) {
			return shorten(w.store.Store.TryAcquire(ctx, r))
		}
		w.store.renew = func(ctx context.Context, g lease.Grant) (lease.Grant, error) {
			return shorten(w.store.Store.Renew(ctx, g))
		}
		l := w.acquire(w.client(lease.Options{}), "x")
		require.LessOrEqual(t, time.Until(l.Deadline()), ttl/3)
		time.Sleep(10 * ttl)
		require.NoError(t, l.Err(), "renewals must come as often as the store's promise asks for")
	})
}
