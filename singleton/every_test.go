package singleton_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

var every = &singleton.Options{EveryOccurrence: true}

// Out of order, all run; with the ordered mark the older ones are stale.
func TestEveryOccurrenceOutOfOrder(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		start := w.until("2026-03-02T06:00:00Z")
		w.until("2026-03-02T07:00:00Z")
		order := []int{30, 10, 20, 0, 10, 30, 20, 0}
		for i, minutes := range order {
			want := singleton.Ran
			if i >= 4 {
				want = singleton.AlreadyDone
			}
			at := start.Add(time.Duration(minutes) * time.Minute)
			res, err := w.host(2*time.Second, every).deliver(t.Context(), at, time.Second, nil)
			require.NoError(t, err)
			require.Equal(t, want, res.Outcome, at)
		}
		require.Len(t, w.journal.occurrences(), 4)

		ordered := w.host(2*time.Second, nil)
		now := start.Add(time.Hour)
		for _, c := range []struct {
			at   time.Time
			want singleton.Outcome
		}{{now, singleton.Ran}, {now.Add(-time.Minute), singleton.Stale}, {now, singleton.AlreadyDone}} {
			res, err := ordered.deliver(t.Context(), c.at, time.Second, nil)
			require.NoError(t, err)
			require.Equal(t, c.want, res.Outcome)
		}
	})
}

// One lock per job stays: another occurrence running is an error that the platform retries, never a success.
func TestEveryOccurrenceDoesNotOverlap(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		var wg sync.WaitGroup
		first := w.host(6*time.Second, every)
		wg.Go(func() { _, _ = first.deliver(t.Context(), at, 10*time.Second, nil) }) // checked below
		time.Sleep(time.Second)
		res, err := w.host(6*time.Second, every).deliver(t.Context(), at.Add(-time.Hour), time.Second, nil)
		require.ErrorIs(t, err, singleton.ErrBusy)
		require.ErrorIs(t, err, lease.ErrHeld)
		require.Equal(t, singleton.Busy, res.Outcome)
		res, err = w.host(6*time.Second, every).deliver(t.Context(), at, time.Second, nil)
		require.ErrorIs(t, err, singleton.ErrRunning)
		require.Equal(t, singleton.Running, res.Outcome)
		wg.Wait()
		require.Len(t, w.journal.occurrences(), 1)
	})
}

// Records are kept for Keep; what is older might have run, so it does not run.
func TestEveryOccurrenceKeep(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		now := w.until("2026-03-10T06:00:00Z")
		h := w.host(2*time.Second, &singleton.Options{EveryOccurrence: true, Keep: 24 * time.Hour})
		for _, c := range []struct {
			age  time.Duration
			want singleton.Outcome
		}{{23 * time.Hour, singleton.Ran}, {25 * time.Hour, singleton.Stale}, {24 * 365 * time.Hour, singleton.Stale}} {
			res, err := h.deliver(t.Context(), now.Add(-c.age), time.Second, nil)
			require.NoError(t, err)
			require.Equal(t, c.want, res.Outcome, c.age)
		}
		info, err := h.client.Inspect(t.Context(), jobName)
		require.NoError(t, err)
		require.Equal(t, lease.Free, info.State)
	})
}

// Ten deliveries at once of three occurrences: each runs once, none is lost.
func TestEveryOccurrenceConcurrently(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		now := w.until("2026-03-02T06:00:00Z")
		var wg sync.WaitGroup
		for i := range 12 {
			h := w.host(6*time.Second, &singleton.Options{EveryOccurrence: true, Wait: time.Minute})
			at := now.Add(-time.Duration(i%3) * time.Minute)
			wg.Go(func() {
				res, err := h.deliver(t.Context(), at, 200*time.Millisecond, nil)
				if err != nil || res.Outcome != singleton.Ran && res.Outcome != singleton.AlreadyDone {
					t.Errorf("%v: %s, %v", at, res.Outcome, err)
				}
			})
		}
		wg.Wait()
		require.Len(t, w.journal.occurrences(), 3)
	})
}

// The job ends between a delivery's look at the record and its grant of the lock: it is done then, not in doubt.
func TestEveryOccurrenceRecordChangesMeanwhile(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, policy := range []singleton.Policy{singleton.AtLeastOnce, singleton.AtMostOnce} {
			o := &singleton.Options{EveryOccurrence: true, Policy: policy}
			at = at.Add(time.Hour)
			time.Sleep(time.Until(at))
			first, second := w.host(6*time.Second, o), w.host(6*time.Second, o)
			ended := make(chan struct{})
			second.wire.intercept(func(_ context.Context, op string, do func() error) error {
				if op == "acquire" {
					<-ended
				}
				return do()
			})
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := first.deliver(t.Context(), at, 2*time.Second, nil)
				if err != nil {
					t.Error(err)
				}
				close(ended)
			})
			time.Sleep(time.Second)
			res, err := second.deliver(t.Context(), at, time.Second, nil)
			require.NoError(t, err)
			require.Equal(t, singleton.AlreadyDone, res.Outcome)
			wg.Wait()
			require.Len(t, w.journal.of(at), 1)
		}
	})
}

// A run that lost its lease cannot end the record of its successor's.
func TestEveryOccurrenceLost(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		slow := w.host(2*time.Second, every)
		var wg sync.WaitGroup
		var res singleton.Result
		var err error
		wg.Go(func() {
			res, err = slow.job.Run(t.Context(), at, func(context.Context, *lease.Lease) error {
				slow.wire.intercept(func(_ context.Context, op string, _ func() error) error { return unavailable(op) })
				time.Sleep(22 * time.Second)
				slow.wire.intercept(nil)
				return nil
			})
		})
		time.Sleep(20 * time.Second)
		_, nextErr := w.host(2*time.Second, every).deliver(t.Context(), at, 5*time.Second, errBody)
		require.ErrorIs(t, nextErr, errBody)
		wg.Wait()
		require.Equal(t, singleton.Lost, res.Outcome)
		require.ErrorIs(t, err, lease.ErrLost)
		again, err := w.host(2*time.Second, every).deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, again.Outcome, "the successor failed, and the late run did not count")
	})
}

// An operator broke the lock of a living run: its record tells that another has begun, even before the lease does.
func TestEveryOccurrenceBroken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, cut := range []bool{false, true} {
			at = at.Add(time.Minute)
			time.Sleep(time.Until(at))
			slow := w.host(time.Minute, every)
			res, err := slow.job.Run(t.Context(), at, func(ctx context.Context, l *lease.Lease) error {
				g := l.Grant()
				require.NoError(t, slow.wire.Store.Release(ctx, g, lease.Final{}))
				next, err := w.host(time.Minute, every).deliver(ctx, at, time.Second, errBody)
				require.ErrorIs(t, err, errBody)
				require.Greater(t, next.Token, g.Token)
				slow.wire.intercept(func(_ context.Context, op string, do func() error) error {
					if cut && op == "release" {
						return unavailable(op)
					}
					return do()
				})
				return nil
			})
			require.ErrorIs(t, err, lease.ErrLost)
			require.Equal(t, singleton.Lost, res.Outcome)
			res, err = w.host(time.Minute, every).deliver(t.Context(), at, time.Second, nil)
			require.NoError(t, err)
			require.Equal(t, singleton.Ran, res.Outcome)
		}
	})
}

// Clear forgets the occurrence and newer ones, not older ones.
func TestEveryOccurrenceClear(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		first := w.until("2026-03-02T06:00:00Z")
		second, third := first.Add(time.Minute), first.Add(2*time.Minute)
		time.Sleep(time.Until(third))
		h := w.host(2*time.Second, every)
		deliver := func(at time.Time, want singleton.Outcome) {
			t.Helper()
			res, err := h.deliver(t.Context(), at, time.Second, nil)
			require.NoError(t, err)
			require.Equal(t, want, res.Outcome)
		}
		for _, at := range []time.Time{first, second, third} {
			deliver(at, singleton.Ran)
		}
		require.NoError(t, h.job.Clear(t.Context(), second))
		deliver(first, singleton.AlreadyDone)
		deliver(third, singleton.Ran)
		deliver(second, singleton.Ran)
		deliver(third, singleton.AlreadyDone)
	})
}

// Records of a job whose name begins like another's are that job's own.
func TestEveryOccurrenceOfJobsWithSimilarNames(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		h := w.host(2*time.Second, every)
		other, err := singleton.New(h.client, jobName+"@2026", every)
		require.NoError(t, err)
		for _, job := range []*singleton.Job{h.job, other} {
			res, err := job.Run(t.Context(), at, func(context.Context, *lease.Lease) error { return nil })
			require.NoError(t, err)
			require.Equal(t, singleton.Ran, res.Outcome)
		}
		require.NoError(t, h.job.Clear(t.Context(), at))
		res, err := other.Run(t.Context(), at, func(context.Context, *lease.Lease) error { return nil })
		require.NoError(t, err)
		require.Equal(t, singleton.AlreadyDone, res.Outcome)
		res, err = h.deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
	})
}
