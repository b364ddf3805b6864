package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

// TestNobodyIsStarved: one takes the lock again and again, at once, and cannot know that another waits.
func TestNobodyIsStarved(t *testing.T) {
	for _, hold := range []time.Duration{ms, 100 * ms, 10 * time.Second} {
		inBubble(t, func(t *testing.T, w *world) {
			greedy, other := w.client(lease.Options{}), w.client(lease.Options{Holder: "other"})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			over := make(chan struct{})
			go func() {
				defer close(over)
				for ctx.Err() == nil {
					_ = greedy.Do(ctx, "x", func(ctx context.Context, _ *lease.Lease) error { time.Sleep(hold); return nil })
				}
			}()
			time.Sleep(hold / 2)
			began := time.Now()
			patient, stop := context.WithTimeout(t.Context(), 40*time.Second+2*hold)
			defer stop()
			l, err := other.Acquire(patient, "x")
			cancel()
			if err == nil {
				err = l.Release(t.Context())
			}
			<-over
			require.NoError(t, err, "after %v", time.Since(began))
		})
	}
}

// TestWhoIsAloneHardlyPauses: in an hour of taking a lock again and again one lets others go first a few times at the start, and
// once a minute later on.
func TestWhoIsAloneHardlyPauses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		began, worst, pauses, grants := time.Now(), time.Duration(0), 0, 0
		for time.Since(began) < time.Hour {
			asked := time.Now()
			l, err := c.Acquire(t.Context(), "x")
			require.NoError(t, err)
			if took := time.Since(asked); took > 0 {
				worst, pauses = max(worst, took), pauses+1
			}
			grants++
			time.Sleep(500 * ms)
			require.NoError(t, l.Release(t.Context()))
		}
		t.Logf("%d pauses, the longest %v, %d grants", pauses, worst, grants)
		require.LessOrEqual(t, pauses, 66)
		require.GreaterOrEqual(t, pauses, 55, "who comes later waits for a minute at most")
		require.Less(t, worst, 1600*ms)
		require.Empty(t, w.told(lease.Contended))
	})
}

// TestOneWhoThinksBetweenItsTurnsIsNotHeldUp: others have had a look meanwhile.
func TestOneWhoThinksBetweenItsTurnsIsNotHeldUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		for range 100 {
			asked := time.Now()
			l, err := c.Acquire(t.Context(), "x")
			require.NoError(t, err)
			require.Zero(t, time.Since(asked))
			time.Sleep(time.Second)
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(1100 * ms)
		}
	})
}

// TestStoreThatWakesItsWaitersIsAskedAtOnce: who waits there is told of the release.
func TestStoreThatWakesItsWaitersIsAskedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, err := lease.New(waker{w.store.Store, func(context.Context, *lease.HeldError) error { return nil }},
			&lease.Options{TTL: ttl, Observer: w})
		require.NoError(t, err)
		for range 100 {
			asked := time.Now()
			l, err := c.Acquire(t.Context(), "x")
			require.NoError(t, err)
			require.Zero(t, time.Since(asked))
			time.Sleep(time.Second)
			require.NoError(t, l.Release(t.Context()))
		}
		require.Zero(t, c.Remembered())
		require.NoError(t, c.Close(t.Context()))
	})
}

// greedy makes c take x at once until it is about to let others go first.
func greedy(t *testing.T, c *lease.Client) {
	t.Helper()
	for range 5 {
		l, err := c.Acquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, l.Release(t.Context()))
	}
}

func TestContextEndsWhileOthersGoFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		greedy(t, c)
		cause := errors.New("no more interest")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*ms, func() { cancel(cause) })
		began := time.Now()
		_, err := c.Acquire(ctx, "x")
		require.ErrorIs(t, err, cause)
		requireClass(t, lease.ErrUnavailable, err)
		require.Equal(t, 100*ms, time.Since(began))
		require.Equal(t, lease.Free, w.state("x"))
	})
}

// TestNobodyIsLateBecauseOthersGoFirst: a deadline that is shorter than the pause shortens it.
func TestNobodyIsLateBecauseOthersGoFirst(t *testing.T) {
	for _, left := range []time.Duration{ms, 100 * ms, time.Second} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.client(lease.Options{})
			greedy(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			began := time.Now()
			l, err := c.Acquire(ctx, "x")
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(began), left/2)
			require.Greater(t, time.Since(began), left/4)
			require.NoError(t, l.Release(t.Context()))
		})
	}
}

func TestCloseWhileOthersGoFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		greedy(t, c)
		got := make(chan error)
		go func() {
			_, err := c.Acquire(t.Context(), "x")
			got <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Close(t.Context()))
		began := time.Now()
		requireClass(t, lease.ErrClosed, <-got)
		require.Zero(t, time.Since(began))
	})
}

// share is what each of some hosts, or goroutines of one host, has had of a lock that all want again and again, at once.
func share(t *testing.T, w *world, clients []*lease.Client, hold, lasts time.Duration) (grants []int, waits []time.Duration) {
	t.Helper()
	grants, waits = make([]int, len(clients)), make([]time.Duration, len(clients))
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				asked := time.Now()
				_ = c.Do(context.WithoutCancel(ctx), "x", func(context.Context, *lease.Lease) error {
					grants[i]++
					waits[i] = max(waits[i], time.Since(asked))
					time.Sleep(hold)
					return nil
				})
			}
		})
	}
	wg.Wait()
	return grants, waits
}

// TestTurns: nobody has the lock nearly all the time where others want it as well, as hosts or as goroutines of one client, and
// whether or not a look is cheaper than an attempt.
func TestTurns(t *testing.T) {
	for _, tt := range []struct {
		hosts, each int
		looks       bool
		hold        time.Duration
	}{
		{2, 1, false, 100 * ms},
		{2, 1, true, 100 * ms},
		{2, 1, false, 10 * time.Second},
		{1, 2, false, 100 * ms},
		{1, 2, true, 100 * ms},
		{1, 20, true, 100 * ms},
		{2, 2, false, 100 * ms},
		{2, 2, true, 100 * ms},
		{10, 1, false, 100 * ms},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var all []*lease.Client
				for i := range tt.hosts {
					var s lease.Store = w.service.Store(nil)
					if tt.looks {
						s = &looker{Store: w.service.Store(nil)}
					}
					c, err := lease.New(s, &lease.Options{TTL: ttl, Holder: fmt.Sprint("host", i), Observer: w})
					require.NoError(t, err)
					for range tt.each {
						all = append(all, c)
					}
				}
				const lasts = 4 * time.Minute
				grants, waits := share(t, w, all, tt.hold, lasts)
				t.Log(grants, waits)
				for i := range grants {
					require.Greater(t, grants[i], slices.Max(grants)/4)
					require.Less(t, waits[i], time.Minute+tt.hold*6)
				}
			})
		})
	}
}

func TestMemoryOfCrowdsIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		for i := range 2 * lease.MaxRemembered {
			require.NoError(t, w.acquire(c, fmt.Sprint("x", i)).Release(t.Context()))
		}
		require.Equal(t, lease.MaxRemembered, c.Remembered())
	})
}

// TestWhatIsWaitedForIsNotForgotten: a wait goes on while many other locks are taken.
func TestWhatIsWaitedForIsNotForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{Holder: "other"}), "x")
		c := w.client(lease.Options{})
		var got *lease.Lease
		done := make(chan error)
		go func() {
			var err error
			got, err = c.Acquire(t.Context(), "x")
			done <- err
		}()
		synctest.Wait()
		for i := range 2 * lease.MaxRemembered {
			require.NoError(t, w.acquire(c, fmt.Sprint("y", i)).Release(t.Context()))
		}
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, <-done)
		require.NoError(t, got.Release(t.Context()))
		require.LessOrEqual(t, c.Remembered(), lease.MaxRemembered)
	})
}

// TestTryAcquireNeverPauses, whatever went before.
func TestTryAcquireNeverPauses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		began, held := time.Now(), time.Duration(0)
		for range 100 {
			l, err := c.TryAcquire(t.Context(), "x")
			require.NoError(t, err)
			time.Sleep(time.Second)
			held += time.Second
			require.NoError(t, l.Release(t.Context()))
		}
		require.Equal(t, held, time.Since(began))
	})
}

// TestOthersThatHaveGoneAreForgotten: they are let go first a few times more.
func TestOthersThatHaveGoneAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{Holder: "other"}), "x")
		time.AfterFunc(3*time.Second, func() { _ = l.Release(t.Context()) })
		c := w.client(lease.Options{})
		pauses := 0
		for began := time.Now(); time.Since(began) < 30*time.Second; {
			asked := time.Now()
			l, err := c.Acquire(t.Context(), "x")
			require.NoError(t, err)
			if time.Since(asked) > 0 {
				pauses++
			}
			time.Sleep(100 * ms)
			require.NoError(t, l.Release(t.Context()))
		}
		require.GreaterOrEqual(t, pauses, 2, "the wait, and a pause for others")
		require.LessOrEqual(t, pauses, 6)
	})
}

// TestOneTurnAfterManyQuietOnesIsNotHeldUp: what counts is for how long others had no chance, however the lock was asked for.
func TestOneTurnAfterManyQuietOnesIsNotHeldUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		for range 100 {
			l, err := c.TryAcquire(t.Context(), "x")
			require.NoError(t, err)
			time.Sleep(time.Second)
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(100 * ms)
		}
		began := time.Now()
		l, err := c.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		require.NoError(t, l.Release(t.Context()))
	})
}

// TestLookThatFailsAfterOthersWentFirst: a look that fails is no reason to fail.
func TestLookThatFailsAfterOthersWentFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &looker{Store: w.service.Store(nil), fail: func(context.Context, int) error {
			return &lease.Error{Op: "wait for", Store: "a store", Name: "x", Class: lease.ErrDenied}
		}}
		c, err := lease.New(s, &lease.Options{TTL: ttl, Observer: w})
		require.NoError(t, err)
		greedy(t, c)
		l, err := c.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.EqualValues(t, 1, s.looks.Load())
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}
