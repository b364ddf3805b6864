package singleton_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// TestSF01_DeliveredAgainAfterAndDuringTheFirstRun follows the case's four steps.
func TestSF01_DeliveredAgainAfterAndDuringTheFirstRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		six := w.until("2026-03-02T06:00:00Z")
		fresh := func() *host { return w.host(6*time.Second, nil) }
		res, err := fresh().deliver(t.Context(), six, 200*time.Millisecond, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)

		for _, after := range []time.Duration{2 * time.Second, 90 * time.Second} {
			time.Sleep(time.Until(six.Add(after)))
			asked := time.Now()
			again, err := fresh().deliver(t.Context(), six, 200*time.Millisecond, nil)
			require.NoError(t, err, "a success, or the platform delivers again")
			require.Equal(t, singleton.AlreadyDone, again.Outcome)
			require.Less(t, time.Since(asked), time.Second)
		}

		seven := w.until("2026-03-02T07:00:00Z")
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := fresh().deliver(t.Context(), seven, 5*time.Second, nil)
			assert.NoError(t, err)
			assert.Equal(t, singleton.Ran, res.Outcome)
		})
		for _, after := range []time.Duration{time.Second, 3 * time.Second} {
			time.Sleep(time.Until(seven.Add(after)))
			asked := time.Now()
			res, err := fresh().deliver(t.Context(), seven, 5*time.Second, nil)
			require.ErrorIs(t, err, singleton.ErrRunning)
			require.ErrorIs(t, err, lease.ErrHeld)
			require.Equal(t, singleton.Running, res.Outcome)
			require.Contains(t, res.Holder, "host")
			require.NotZero(t, res.Token)
			require.Less(t, time.Since(asked), time.Second, "it does not wait unless asked")
		}
		time.Sleep(time.Until(seven.Add(8 * time.Second)))
		res, err = fresh().deliver(t.Context(), seven, 5*time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.AlreadyDone, res.Outcome)
		wg.Wait()

		eight := w.until("2026-03-02T08:00:00Z")
		outcomes := deliverAtOnce(t, w, 10, eight)
		require.Equal(t, 1, outcomes[singleton.Ran])
		require.Equal(t, 9, outcomes[singleton.Running]+outcomes[singleton.AlreadyDone])
		require.Equal(t, []time.Time{six, seven, eight}, w.journal.occurrences(), "one line each")
	})
}

// deliverAtOnce lets n fresh hosts deliver one occurrence at the same instant and counts the outcomes.
func deliverAtOnce(t *testing.T, w *world, n int, at time.Time) map[singleton.Outcome]int {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	outcomes := map[singleton.Outcome]int{}
	for range n {
		h := w.host(6*time.Second, nil)
		wg.Go(func() {
			res, err := h.deliver(t.Context(), at, 200*time.Millisecond, nil)
			if res.Outcome != singleton.Running && err != nil {
				t.Errorf("%s: %v", res.Outcome, err)
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[res.Outcome]++
		})
	}
	wg.Wait()
	return outcomes
}

// Markers have no end in this mode, which is more than the day that schedulers retry for.
func TestSF01_DoneMarkersOutliveADay(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		_, err := w.host(6*time.Second, nil).deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		time.Sleep(30 * 24 * time.Hour)
		res, err := w.host(6*time.Second, nil).deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.AlreadyDone, res.Outcome)
	})
}

// TestSF02_EarlyAndLateDeliveries is the case's first step: early, in time and 46 minutes late, by the local clock.
func TestSF02_EarlyAndLateDeliveries(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		var outcomes []singleton.Outcome
		for _, now := range []string{"2026-03-02T17:59:58.7Z", "2026-03-02T18:00:58.9Z", "2026-03-02T18:46:09Z"} {
			w.until(now)
			at, err := singleton.ParseOccurrence("2026-03-02T18:00:00Z")
			require.NoError(t, err)
			res, err := w.host(6*time.Second, nil).deliver(t.Context(), at, time.Second, nil)
			require.NoError(t, err)
			require.Equal(t, "2026-03-02T18:00:00Z", res.Occurrence.Format(time.RFC3339Nano))
			outcomes = append(outcomes, res.Outcome)
		}
		require.Equal(t, []singleton.Outcome{singleton.Ran, singleton.AlreadyDone, singleton.AlreadyDone}, outcomes)
	})
}

// TestSF02_SchedulersWithOffsetClocks is the case's second step: four schedulers "every 2 s" for a minute.
func TestSF02_SchedulersWithOffsetClocks(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		start := w.until("2026-03-02T18:00:00Z")
		var wg sync.WaitGroup
		for _, offset := range []time.Duration{-700 * time.Millisecond, 0, 400 * time.Millisecond, 900 * time.Millisecond} {
			h := w.host(6*time.Second, nil, offset)
			wg.Go(func() {
				for at := start.Add(2 * time.Second); at.Before(start.Add(62 * time.Second)); at = at.Add(2 * time.Second) {
					time.Sleep(time.Until(at.Add(-offset))) // this host's clock shows at
					res, err := h.deliver(t.Context(), at, 5*time.Millisecond, nil)
					if err != nil || res.Outcome != singleton.Ran && res.Outcome != singleton.AlreadyDone {
						t.Errorf("%v at offset %v: %s, %v", at, offset, res.Outcome, err)
					}
				}
			})
		}
		wg.Wait()
		ran := w.journal.occurrences()
		require.Len(t, ran, 30)
		for i, at := range ran {
			require.Equal(t, start.Add(time.Duration(i+1)*2*time.Second), at, "each once, in order")
		}
	})
}

// The documented rounding rule, and what has no scheduled time.
func TestSF02_OccurrencesAreWholeSeconds(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T18:00:00Z")
		h := w.host(6*time.Second, nil)
		res, err := h.deliver(t.Context(), at.Add(999*time.Millisecond), time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, at, res.Occurrence)
		res, err = h.deliver(t.Context(), at.In(time.FixedZone("elsewhere", 5*3600)), time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.AlreadyDone, res.Outcome)

		for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(0, 999_999_999), time.Unix(-1, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
			h.wire.take()
			res, err := h.deliver(t.Context(), at, time.Second, nil)
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.Equal(t, singleton.NotRun, res.Outcome)
			require.Empty(t, h.wire.take(), "nothing was sent")
		}
		_, err = h.job.Run(t.Context(), at, nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}

// A bogus occurrence of the future would make every later one stale.
func TestFarFutureIsRefused(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		h := w.host(6*time.Second, nil)
		_, err := h.deliver(t.Context(), at, time.Second, nil) // so that the service's clock is known
		require.NoError(t, err)
		res, err := h.deliver(t.Context(), at.Add(time.Hour), time.Second, nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.Equal(t, singleton.NotRun, res.Outcome)
		res, err = h.deliver(t.Context(), at.Add(30*time.Second), time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome, "less than lease.MaxAhead early is early, not bogus")
	})
}

var errBody = errors.New("the body's own error")

// What a delivery costs, in operations of the store: a run two, a skip one.
func TestFloors(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, c := range []struct {
			o         singleton.Options
			run, skip []string
		}{
			{singleton.Options{}, []string{"acquire", "release"}, []string{"acquire"}},
			{singleton.Options{Policy: singleton.AtMostOnce}, []string{"acquire", "release"}, []string{"acquire"}},
			{singleton.Options{EveryOccurrence: true}, []string{"load", "acquire", "swap", "swap", "release"}, []string{"load"}},
		} {
			at = at.Add(time.Minute)
			time.Sleep(time.Until(at))
			h := w.host(6*time.Second, &c.o)
			for _, want := range [][]string{c.run, c.skip} {
				_, err := h.deliver(t.Context(), at, 100*time.Millisecond, nil)
				require.NoError(t, err)
				var got []string
				for _, op := range h.wire.take() {
					got = append(got, op.name)
				}
				require.Equal(t, want, got)
			}
		}
	})
}
