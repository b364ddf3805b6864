package singleton_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// runAndKill delivers at on h with a body that does not end, and kills the process after d.
func runAndKill(t *testing.T, h *host, at time.Time, d time.Duration) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = h.deliver(t.Context(), at, time.Hour, nil) }) // its process dies
	time.Sleep(d)
	h.kill()
	wg.Wait()
}

// TestSF04a_KilledAtTheTimeOut: retried when dead, at 9 s and at 16 s after the kill.
func TestSF04a_KilledAtTheTimeOut(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		runAndKill(t, w.host(2*time.Second, nil), at, 3*time.Second)

		time.Sleep(9 * time.Second)
		res, err := w.host(2*time.Second, nil).deliver(t.Context(), at, 100*time.Millisecond, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
		runs := w.journal.of(at)
		require.Len(t, runs, 2)
		require.Greater(t, res.Token, runs[0].token)

		time.Sleep(7 * time.Second)
		res, err = w.host(2*time.Second, nil).deliver(t.Context(), at, 100*time.Millisecond, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.AlreadyDone, res.Outcome)
	})
}

// TestSF04b_AtMostOnce: both copies are refused as unknown, the body began once, and an operator lets it run once more.
func TestSF04b_AtMostOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, o := range []singleton.Options{{Policy: singleton.AtMostOnce}, {Policy: singleton.AtMostOnce, EveryOccurrence: true}} {
			at = at.Add(time.Hour)
			time.Sleep(time.Until(at))
			before := len(w.journal.occurrences())
			first := w.host(2*time.Second, &o)
			runAndKill(t, first, at, 3*time.Second)
			for _, after := range []time.Duration{9 * time.Second, 7 * time.Second} {
				time.Sleep(after)
				res, err := w.host(2*time.Second, &o).deliver(t.Context(), at, 100*time.Millisecond, nil)
				require.ErrorIs(t, err, lease.ErrInDoubt)
				require.ErrorContains(t, err, "Clear", "the error says what to do")
				require.Equal(t, singleton.InDoubt, res.Outcome)
			}
			require.Len(t, w.journal.occurrences(), before+1, "the body began once")

			operator := w.host(2*time.Second, &o)
			h, err := operator.job.History(t.Context())
			require.NoError(t, err)
			require.Nil(t, h.Running)
			require.NotEmpty(t, h.Runs)
			require.Equal(t, at, h.Runs[0].Occurrence)
			require.Equal(t, singleton.InDoubt, h.Runs[0].Outcome)
			require.Zero(t, h.Runs[0].Took, "started, no end")
			require.WithinDuration(t, at, h.Runs[0].Started, 2*time.Second)
			killed := w.journal.of(at)[0].token

			require.NoError(t, operator.job.Clear(t.Context(), at))
			for i, want := range []singleton.Outcome{singleton.Ran, singleton.AlreadyDone} {
				res, err := w.host(2*time.Second, &o).deliver(t.Context(), at, 100*time.Millisecond, nil)
				require.NoError(t, err)
				require.Equal(t, want, res.Outcome)
				if i == 0 {
					require.Greater(t, res.Token, killed)
				}
			}
		}
	})
}

// TestSF04c_FailedRunsAreRetried: the body fails twice and succeeds at the third delivery; a fourth copy follows.
func TestSF04c_FailedRunsAreRetried(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, every := range []bool{false, true} {
			o := &singleton.Options{EveryOccurrence: every}
			at = at.Add(time.Minute)
			time.Sleep(time.Until(at))
			var runs int
			for i, want := range []singleton.Outcome{singleton.Failed, singleton.Failed, singleton.Ran, singleton.AlreadyDone} {
				h := w.host(2*time.Second, o)
				res, err := h.job.Run(t.Context(), at, func(context.Context, *lease.Lease) error {
					runs++
					if i < 2 {
						return errBody
					}
					return nil
				})
				require.Equal(t, want, res.Outcome)
				if i < 2 {
					require.Same(t, errBody, err, "the platform sees the body's own error")
				} else {
					require.NoError(t, err)
				}
				info, err := h.client.Inspect(t.Context(), jobName)
				require.NoError(t, err)
				require.Equal(t, lease.Free, info.State, "at once, not after the TTL")
			}
			require.Equal(t, 3, runs)
		}
	})
}

// Under AtMostOnce a failed run is known to have failed, which is not the same as in doubt.
func TestAtMostOnceDoesNotRetryFailures(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, every := range []bool{false, true} {
			o := &singleton.Options{Policy: singleton.AtMostOnce, EveryOccurrence: every}
			at = at.Add(time.Minute)
			time.Sleep(time.Until(at))
			res, err := w.host(2*time.Second, o).deliver(t.Context(), at, time.Second, errBody)
			require.ErrorIs(t, err, errBody)
			require.Equal(t, singleton.Failed, res.Outcome)
			for range 2 {
				res, err = w.host(2*time.Second, o).deliver(t.Context(), at, time.Second, nil)
				require.ErrorIs(t, err, singleton.ErrFailedBefore)
				require.ErrorIs(t, err, lease.ErrPassed)
				require.NotErrorIs(t, err, lease.ErrInDoubt)
				require.Equal(t, singleton.FailedBefore, res.Outcome)
			}
			require.Len(t, w.journal.of(at), 1)

			// Cleared, started and killed: the old failure must not hide that the new run has no end.
			h := w.host(2*time.Second, o)
			require.NoError(t, h.job.Clear(t.Context(), at))
			runAndKill(t, h, at, time.Second)
			time.Sleep(10 * time.Second)
			res, err = w.host(2*time.Second, o).deliver(t.Context(), at, time.Second, nil)
			require.ErrorIs(t, err, lease.ErrInDoubt)
			require.Equal(t, singleton.InDoubt, res.Outcome)
			require.Len(t, w.journal.of(at), 2)
		}
	})
}

// A policy that changed between deliveries: the failure of an earlier run must not hide that the last one has no end.
func TestAtMostOnceAfterAtLeastOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		h := w.host(2*time.Second, nil)
		_, err := h.deliver(t.Context(), at, time.Second, errBody)
		require.ErrorIs(t, err, errBody)
		runAndKill(t, h, at, time.Second)
		time.Sleep(10 * time.Second)
		once := &singleton.Options{Policy: singleton.AtMostOnce}
		res, err := w.host(2*time.Second, once).deliver(t.Context(), at, time.Second, nil)
		require.ErrorIs(t, err, lease.ErrInDoubt)
		require.Equal(t, singleton.InDoubt, res.Outcome)
	})
}

// An occurrence older than one that was started is over under AtMostOnce, though it never ran; it is not in doubt.
func TestAtMostOnceOlderThanAStartedOne(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		o := &singleton.Options{Policy: singleton.AtMostOnce}
		runAndKill(t, w.host(2*time.Second, o), at, time.Second)
		time.Sleep(10 * time.Second)
		res, err := w.host(2*time.Second, o).deliver(t.Context(), at.Add(-time.Minute), time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Stale, res.Outcome)
	})
}

func TestPanicsAreFailuresAndGoOn(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		h := w.host(2*time.Second, nil)
		require.PanicsWithValue(t, "boom", func() {
			_, _ = h.job.Run(t.Context(), at, func(context.Context, *lease.Lease) error { panic("boom") }) // panics
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = h.job.Run(t.Context(), at, func(context.Context, *lease.Lease) error { runtime.Goexit(); return nil }) // does not return
		})
		wg.Wait()
		hist, err := h.job.History(t.Context())
		require.NoError(t, err)
		require.Nil(t, hist.Running, "released")
		require.Len(t, hist.Runs, 2)
		for _, run := range hist.Runs {
			require.Equal(t, singleton.Failed, run.Outcome)
		}
		res, err := h.deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
	})
}
