package singleton_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/singleton"
)

// TestSF03_ARunTakesLongerThanThePeriod follows the case: occurrences at 0, 2, 4, 6, 8 s, body 5 s, renewed.
func TestSF03_ARunTakesLongerThanThePeriod(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		start := w.until("2026-03-02T06:00:00Z")
		ttl := w.ttl(1500 * time.Millisecond)
		got := make([]singleton.Result, 5)
		var wg sync.WaitGroup
		for i := range got {
			h := w.host(ttl, nil)
			at := start.Add(time.Duration(2*i) * time.Second)
			wg.Go(func() {
				time.Sleep(time.Until(at))
				var err error
				if got[i], err = h.deliver(t.Context(), at, 5*time.Second, nil); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(3*time.Second + 500*time.Millisecond)
		h, err := w.host(ttl, nil).job.History(t.Context())
		require.NoError(t, err)
		require.NotNil(t, h.Running)
		require.Equal(t, start, h.Running.Occurrence)
		require.WithinDuration(t, start, h.Running.Since, 2*time.Second)
		require.True(t, h.Running.Expires.After(start.Add(ttl+time.Second)), "it is renewed")
		require.Empty(t, h.Runs)
		wg.Wait()

		var outcomes []singleton.Outcome
		for _, res := range got {
			outcomes = append(outcomes, res.Outcome)
		}
		require.Equal(t, []singleton.Outcome{
			singleton.Ran, singleton.Busy, singleton.Busy, singleton.Ran, singleton.Busy,
		}, outcomes, "skipped is not done")
		require.Equal(t, got[0].Token, got[1].Token, "who runs is named")
		require.Equal(t, []time.Time{start, start.Add(6 * time.Second)}, w.journal.occurrences())
		require.GreaterOrEqual(t, got[0].Held, 5*time.Second)
	})
}

// Another occurrence is skipped at once: Wait is for the own one.
func TestSF03_SkippedWithoutWaiting(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		first := w.host(6*time.Second, nil)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = first.deliver(t.Context(), at, 10*time.Second, nil) }) // the journal has it
		time.Sleep(2 * time.Second)
		res, err := w.host(6*time.Second, &singleton.Options{Wait: time.Minute}).deliver(t.Context(), at.Add(2*time.Second), time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Busy, res.Outcome)
		require.Zero(t, res.Waited)
		wg.Wait()
		require.Len(t, w.journal.occurrences(), 1)
	})
}

// TestSF03_Queued is the other allowed policy: with EveryOccurrence and a Wait all of them run, one after another.
func TestSF03_Queued(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		start := w.until("2026-03-02T06:00:00Z")
		ttl := w.ttl(1500 * time.Millisecond)
		var wg sync.WaitGroup
		for i := range 5 {
			h := w.host(ttl, &singleton.Options{EveryOccurrence: true, Wait: time.Minute})
			at := start.Add(time.Duration(2*i) * time.Second)
			wg.Go(func() {
				time.Sleep(time.Until(at))
				res, err := h.deliver(t.Context(), at, 5*time.Second, nil)
				if err != nil || res.Outcome != singleton.Ran {
					t.Errorf("%v: %s, %v", at, res.Outcome, err)
				}
			})
		}
		wg.Wait()
		require.ElementsMatch(t, []time.Time{
			start, start.Add(2 * time.Second), start.Add(4 * time.Second), start.Add(6 * time.Second), start.Add(8 * time.Second),
		}, w.journal.occurrences())
	})
}

// TestSF10_TheRetryComesBeforeTheDeadRunsLeaseHasEnded: killed at 1 s, delivered again at 2 s and at 20 s.
func TestSF10_TheRetryComesBeforeTheDeadRunsLeaseHasEnded(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		first := w.host(6*time.Second, nil)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = first.deliver(t.Context(), at, time.Hour, nil) }) // its process dies
		time.Sleep(time.Second)
		first.kill()
		time.Sleep(time.Second)
		res, err := w.host(6*time.Second, nil).deliver(t.Context(), at, time.Second, nil)
		require.ErrorIs(t, err, singleton.ErrRunning, "a success would end the retries, and the occurrence were lost")
		require.Equal(t, singleton.Running, res.Outcome)

		time.Sleep(time.Until(at.Add(20 * time.Second))) // the platform delivers again what failed
		res, err = w.host(6*time.Second, nil).deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
		wg.Wait()
		runs := w.journal.of(at)
		require.Len(t, runs, 2)
		require.False(t, runs[0].done)
		require.True(t, runs[1].done)
		require.Greater(t, runs[1].token, runs[0].token)
		again, err := w.host(6*time.Second, nil).deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.AlreadyDone, again.Outcome)
	})
}

// TestSF10_TheRetryWaitsForTheDeadRun: with a Wait the retry at 2 s takes over itself, within the take-over bound.
func TestSF10_TheRetryWaitsForTheDeadRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		first := w.host(6*time.Second, nil)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = first.deliver(t.Context(), at, time.Hour, nil) }) // its process dies
		time.Sleep(time.Second)
		first.kill()
		time.Sleep(time.Second)
		res, err := w.host(6*time.Second, &singleton.Options{Wait: time.Minute}).deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
		require.Greater(t, res.Waited, 3*time.Second)
		wg.Wait()
		runs := w.journal.of(at)
		require.Len(t, runs, 2)
		taken := runs[1].begin.Sub(at)
		require.GreaterOrEqual(t, taken, 6*time.Second)
		require.LessOrEqual(t, taken, 2*6*time.Second+3*time.Second)
	})
}

// TestSF10_ADuplicateOfALivingRun ends as already-done: while it waits, or at the platform's next delivery.
func TestSF10_ADuplicateOfALivingRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		var wg sync.WaitGroup
		living := w.host(6*time.Second, nil)
		wg.Go(func() {
			res, err := living.deliver(t.Context(), at, 5*time.Second, nil)
			assert.NoError(t, err)
			assert.Equal(t, singleton.Ran, res.Outcome)
		})
		time.Sleep(2 * time.Second)
		waits, fails := w.host(6*time.Second, &singleton.Options{Wait: 10 * time.Second}), w.host(6*time.Second, nil)
		_, err := fails.deliver(t.Context(), at, time.Second, nil)
		require.ErrorIs(t, err, singleton.ErrRunning)
		res, err := waits.deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.AlreadyDone, res.Outcome)
		require.InDelta(t, 3, res.Waited.Seconds(), 1.5)
		res, err = fails.deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.AlreadyDone, res.Outcome)
		require.Len(t, w.journal.of(at), 1)
		wg.Wait()
	})
}

// Waiting is bounded by Wait and by ctx, whichever is first.
func TestWaitIsBounded(t *testing.T) {
	for name, c := range map[string]struct{ wait, ctx time.Duration }{
		"by Wait": {2 * time.Second, time.Hour},
		"by ctx":  {time.Hour, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, w *world) {
				at := w.until("2026-03-02T06:00:00Z")
				holder := w.host(10*time.Second, nil)
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = holder.deliver(ctx, at, time.Hour, nil) }) // ends by stop
				time.Sleep(time.Second)
				asked := time.Now()
				limited, cancel := context.WithTimeout(t.Context(), c.ctx)
				defer cancel()
				res, err := w.host(10*time.Second, &singleton.Options{Wait: c.wait}).deliver(limited, at, time.Second, nil)
				require.ErrorIs(t, err, singleton.ErrRunning)
				require.Equal(t, singleton.Running, res.Outcome)
				require.InDelta(t, 2, time.Since(asked).Seconds(), 0.1)
				require.InDelta(t, 2, res.Waited.Seconds(), 0.1)
				stop()
				wg.Wait()
			})
		})
	}
}
