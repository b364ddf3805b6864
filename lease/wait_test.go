package lease_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
	"github.com/cloudlease/cloudlease/memlease"
)

const ms = time.Millisecond

func TestPauseBeforeTheNextLook(t *testing.T) {
	const ttl = 30 * time.Second
	for _, tt := range []struct {
		name            string
		age             time.Duration
		same            bool
		hold, pace, ttl time.Duration
		want            time.Duration
	}{
		{"a new holder", 0, false, 0, 0, ttl, 200 * ms},
		{"it stays for a moment", 200 * ms, true, 0, 0, ttl, 300 * ms},
		{"it stays", 500 * ms, true, 0, 0, ttl, 750 * ms},
		{"it stays for long", time.Hour, true, 0, 0, ttl, time.Second},
		{"it stays, with a short TTL", time.Hour, true, 0, 0, 3 * time.Second, 600 * ms},
		{"a new holder of a lock that is held for long", 0, false, 5 * time.Second, 0, ttl, 500 * ms},
		{"a crowd", 0, false, 100 * ms, 3 * time.Second, ttl, 3 * time.Second},
		{"a crowd, the holder of the last look again", 3 * time.Second, false, 100 * ms, 3 * time.Second, ttl, 3 * time.Second},
		{"a crowd whose holder stays", 3 * time.Second, true, 100 * ms, 3 * time.Second, ttl, time.Second},
		{"a crowd that is too large", 0, false, 100 * ms, 20 * time.Second, ttl, 7500 * ms},
		{"a crowd, with a short TTL", 0, false, 100 * ms, 20 * time.Second, 2 * time.Second, 600 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, lease.Pause(tt.age, tt.same, tt.hold, tt.pace, tt.ttl))
		})
	}
}

func TestPauseOfOneWhoHasJustHadTheLock(t *testing.T) {
	const ttl = 30 * time.Second
	require.Equal(t, 200*ms, lease.Yield(100*ms, 0, ttl, 0))
	require.Equal(t, 800*ms, lease.Yield(100*ms, 0, ttl, 1), "longer if nobody came")
	require.Equal(t, time.Second, lease.Yield(5*time.Minute, 0, ttl, 0), "as long as waiters pause then")
	require.Equal(t, time.Second, lease.Yield(100*ms, 0, ttl, 3))
	require.Equal(t, 4*time.Second, lease.Yield(100*ms, 4*time.Second, ttl, 0))
}

// TestPacesMeet: of two that find the lock free equally often, the slow one becomes faster and the fast one slower.
func TestPacesMeet(t *testing.T) {
	const hold, gain = 100 * ms, 0.1
	fast, slow := 300*ms, 15*time.Second
	for i := range 400 {
		if i%2 == 0 {
			fast, slow = lease.Slower(fast, hold, gain), lease.Slower(slow, hold, gain)
		} else {
			fast, slow = lease.Faster(fast, 4*gain), lease.Faster(slow, 4*gain)
		}
	}
	require.InDelta(t, float64(slow), float64(fast), float64(slow)/20)
	require.LessOrEqual(t, lease.Slower(time.Hour, 0, 1), 20*time.Second)
	require.Equal(t, 200*ms, lease.Faster(201*ms, 0.5))
	require.Greater(t, lease.Slower(0, 0, gain), 200*ms)
	require.Less(t, lease.Slower(time.Second, time.Minute, gain), 1010*ms, "a lock that is held for long is looked at all the same")
}

func TestWhoHasWaitedLongLooksMoreOften(t *testing.T) {
	const pace, usual = 4 * time.Second, 8 * time.Second
	require.Equal(t, pace, lease.Due(pace, time.Minute, 0), "nothing is usual yet")
	require.Equal(t, 2*pace, lease.Due(pace, 0, usual))
	require.Equal(t, pace, lease.Due(pace, usual/2, usual))
	require.Equal(t, pace/2, lease.Due(pace, usual, usual))
	require.Equal(t, 200*ms, lease.Due(pace, time.Hour, usual))
	require.Equal(t, pace/2, lease.Due(pace, 2*time.Minute, 0), "a first wait that is long")
}

func TestPauseEndsWithTheLease(t *testing.T) {
	first, last := time.Hour, time.Duration(0)
	for range 100 {
		d := lease.Within(time.Second, 500*ms)
		first, last = min(first, d), max(last, d)
	}
	require.GreaterOrEqual(t, first, 500*ms)
	require.LessOrEqual(t, last, 750*ms)
	require.Greater(t, last-first, 150*ms, "waiters look at a dead lock one after the other")
	for range 100 {
		d := lease.Within(time.Second, 0)
		require.True(t, d >= 500*ms && d <= 1500*ms, d)
		d = lease.Within(time.Second, 300*ms)
		require.True(t, d >= 350*ms && d <= 550*ms, d)
		require.GreaterOrEqual(t, lease.Within(time.Second, 1), 350*ms, "no storm")
		require.LessOrEqual(t, lease.Within(10*time.Second, time.Second), 1250*ms)
	}
}

// TestPaceFollowsWhatIsSeen: holders that change slow it down; one holder again and again, and a grant, make it faster; who is
// not told by whom it was overtaken has learned nothing.
func TestPaceFollowsWhatIsSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{TTL: 30 * time.Second})
		var paces []time.Duration // after so many answers
		w.store.acquire = func(ctx context.Context, r lease.Request) (lease.Grant, error) {
			n := len(paces)
			paces = append(paces, c.Pace("x"))
			held := &lease.HeldError{Name: "x", Token: lease.Token(n + 1)}
			switch {
			case n < 1:
				held.Token = 0
			case n <= 5:
				held.Holder = fmt.Sprint("host", n)
			case n <= 10:
				held.Token = 0
			case n <= 15:
				held.Holder = "host5"
			case n == 16:
				return w.store.Store.TryAcquire(ctx, r)
			}
			return lease.Grant{}, held
		}
		l, err := c.Acquire(t.Context(), "x")
		require.NoError(t, err)
		for n := 1; n <= 16; n++ {
			before, after := paces[n-1], paces[n]
			switch {
			case n <= 2: // the first answer, and the first that names a holder
				require.Zero(t, after, n)
			case n <= 6:
				require.Greater(t, after, before, n)
			case n <= 11:
				require.Equal(t, before, after, n)
			default:
				require.Less(t, after, before, n)
			}
		}
		require.Less(t, c.Pace("x"), paces[16], "after the grant")
		require.NoError(t, l.Release(t.Context()))
	})
}

// looker is a store whose looks are cheaper than its attempts. fail, if set, may make the nth of them fail.
type looker struct {
	*memlease.Store
	looks atomic.Int64
	fail  func(ctx context.Context, n int) error
}

func (s *looker) Look(ctx context.Context, name string) (lease.Token, error) {
	n := s.looks.Add(1)
	if s.fail != nil {
		if err := s.fail(ctx, int(n)); err != nil {
			return 0, err
		}
	}
	info, err := s.Inspect(ctx, name)
	if err == nil && info.State == lease.Held {
		err = &lease.HeldError{Holder: info.Holder, Token: info.Token, RetryAfter: time.Until(info.Expires)} // and no name
	}
	return info.Token, err
}

func TestWaiterLooksWhereThatIsCheaper(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{}), "x")
		s := &looker{Store: w.service.Store(nil)}
		c, err := lease.New(s, &lease.Options{TTL: ttl, Observer: w})
		require.NoError(t, err)
		time.AfterFunc(10*time.Second, func() { _ = l.Release(t.Context()) })
		began := time.Now()
		_, err = c.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.Less(t, time.Since(began), 12*time.Second)
		require.Len(t, w.told(lease.Contended), 1, "attempts in vain")
		require.Greater(t, s.looks.Load(), int64(8))
		require.Less(t, s.looks.Load(), int64(40))

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		other := w.client(lease.Options{Holder: "late"})
		_, err = other.Acquire(ctx, "x")
		requireClass(t, lease.ErrHeld, err)
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestDeadLockIsLookedAtAtItsEnd, and not a pause later.
func TestDeadLockIsLookedAtAtItsEnd(t *testing.T) {
	for range 20 {
		inBubble(t, func(t *testing.T, w *world) {
			g, err := w.store.TryAcquire(t.Context(), lease.Request{Name: "x", Holder: "dead", TTL: 5 * time.Second, Attempt: "attempt", Since: w.clock.Now()})
			require.NoError(t, err)
			c, err := lease.New(&looker{Store: w.service.Store(nil)}, &lease.Options{TTL: 30 * time.Second, Observer: w})
			require.NoError(t, err)
			l, err := c.Acquire(t.Context(), "x")
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(g.Sent.Wall), 5*time.Second+350*ms)
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, c.Close(t.Context()))
		})
	}
}

// TestLookThatFails ends a wait if trying again cannot mend it, and is followed by an attempt otherwise.
func TestLookThatFails(t *testing.T) {
	failure := func(class error) error {
		return &lease.Error{Op: "wait for", Store: "a store", Name: "x", Class: class}
	}
	for _, class := range []error{lease.ErrDenied, lease.ErrMisconfigured} {
		inBubble(t, func(t *testing.T, w *world) {
			w.acquire(w.client(lease.Options{}), "x")
			s := &looker{Store: w.service.Store(nil), fail: func(context.Context, int) error { return failure(class) }}
			c, err := lease.New(s, &lease.Options{TTL: ttl, Observer: w})
			require.NoError(t, err)
			_, err = c.Acquire(t.Context(), "x")
			requireClass(t, class, err)
			require.EqualValues(t, 1, s.looks.Load())
			require.NoError(t, c.Close(t.Context()))
		})
	}
	for _, class := range []error{lease.ErrUnavailable, lease.ErrInDoubt} {
		inBubble(t, func(t *testing.T, w *world) {
			l := w.acquire(w.client(lease.Options{}), "x")
			s := &looker{Store: w.service.Store(nil), fail: func(_ context.Context, n int) error {
				if n < 5 {
					return failure(class)
				}
				return nil
			}}
			c, err := lease.New(s, &lease.Options{TTL: ttl, Observer: w})
			require.NoError(t, err)
			time.AfterFunc(30*time.Second, func() { _ = l.Release(t.Context()) })
			_, err = c.Acquire(t.Context(), "x")
			require.NoError(t, err)
			require.Len(t, w.told(lease.Contended), 5, "attempts in vain")
			require.NoError(t, c.Close(t.Context()))
		})
	}
}

// TestLookThatHangs is cut off after a CallTimeout.
func TestLookThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{}), "x")
		s := &looker{Store: w.service.Store(nil), fail: func(ctx context.Context, n int) error {
			if n > 1 {
				return nil
			}
			<-ctx.Done()
			return &lease.Error{Op: "wait for", Store: "a store", Name: "x", Class: lease.ErrUnavailable, Err: lease.Cause(ctx)}
		}}
		c, err := lease.New(s, &lease.Options{TTL: ttl, Observer: w})
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = l.Release(t.Context()) })
		began := time.Now()
		_, err = c.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.Less(t, time.Since(began), c.Options().CallTimeout+3*time.Second)
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestClockThatStandsStillMakesNoStorm: with it, everything has just happened.
func TestClockThatStandsStillMakesNoStorm(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.acquire(w.client(lease.Options{}), "x")
		clock := leasetest.NewClock()
		clock.FreezeMono(true)
		s := &looker{Store: w.service.Store(&memlease.Options{Clock: clock.Now})}
		c, err := lease.New(s, &lease.Options{TTL: ttl, Observer: w})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = c.Acquire(ctx, "x")
		requireClass(t, lease.ErrHeld, err)
		require.LessOrEqual(t, s.looks.Load(), int64(320), "more than five looks a second")
		require.NoError(t, c.Close(t.Context()))
	})
}
