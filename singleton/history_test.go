package singleton_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/singleton"
)

func TestHistoryKeepsTheNewestEightRuns(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		h := w.host(6*time.Second, nil)
		hist, err := h.job.History(t.Context())
		require.NoError(t, err)
		require.Equal(t, singleton.History{Job: jobName}, hist, "a job that never ran")

		var last singleton.Result
		for i := range 11 {
			at = at.Add(time.Minute)
			time.Sleep(time.Until(at))
			var result error
			if i%3 == 0 {
				result = errBody
			}
			last, _ = h.deliver(t.Context(), at, 250*time.Millisecond, result) // every third fails
		}
		hist, err = h.job.History(t.Context())
		require.NoError(t, err)
		require.NoError(t, hist.Fault)
		require.Nil(t, hist.Running)
		require.Equal(t, at, hist.Finished)
		require.Equal(t, at, hist.Started)
		require.Len(t, hist.Runs, 8)
		for i, run := range hist.Runs {
			want := singleton.Ran
			if (10-i)%3 == 0 {
				want = singleton.Failed
			}
			require.Equal(t, want, run.Outcome)
			require.Equal(t, at.Add(-time.Duration(i)*time.Minute), run.Occurrence)
			require.GreaterOrEqual(t, run.Took, 250*time.Millisecond)
			require.Less(t, run.Took, 300*time.Millisecond)
			require.WithinDuration(t, run.Occurrence, run.Started, 2*time.Second)
		}
		require.Equal(t, last.Token, hist.Runs[0].Token)
		info, err := h.client.Inspect(t.Context(), jobName)
		require.NoError(t, err)
		require.LessOrEqual(t, len(info.Value), lease.MaxValue)
		require.True(t, strings.HasPrefix(string(info.Value), "s1 "), "the version comes first: %q", info.Value)
	})
}

// A run that was killed has no end; it is shown as in doubt as soon as its lease has ended.
func TestHistoryOfAKilledRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, every := range []bool{false, true} {
			o := &singleton.Options{EveryOccurrence: every}
			h := w.host(2*time.Second, o)
			at = at.Add(time.Hour)
			time.Sleep(time.Until(at))
			_, err := h.deliver(t.Context(), at.Add(-time.Minute), 100*time.Millisecond, errBody)
			require.ErrorIs(t, err, errBody)
			runAndKill(t, h, at, time.Second)

			observer := w.host(2*time.Second, o)
			hist, err := observer.job.History(t.Context())
			require.NoError(t, err)
			require.NotNil(t, hist.Running, "nobody knows yet that it is dead")
			require.Equal(t, at, hist.Running.Occurrence)
			require.Equal(t, h.client.Holder(), hist.Running.Holder)
			require.Equal(t, w.journal.of(at)[0].token, hist.Running.Token)
			require.Equal(t, singleton.Failed, hist.Runs[0].Outcome)

			time.Sleep(20 * time.Second)
			hist, err = observer.job.History(t.Context())
			require.NoError(t, err)
			require.Nil(t, hist.Running)
			require.Equal(t, singleton.InDoubt, hist.Runs[0].Outcome)
			require.Equal(t, at, hist.Runs[0].Occurrence)
			require.Equal(t, singleton.Failed, hist.Runs[1].Outcome)

			_, err = observer.deliver(t.Context(), at, 100*time.Millisecond, nil)
			require.NoError(t, err)
			hist, err = observer.job.History(t.Context())
			require.NoError(t, err)
			require.Equal(t, singleton.Ran, hist.Runs[0].Outcome)
			require.Equal(t, singleton.Failed, hist.Runs[1].Outcome, "its end is known now")
		}
	})
}

// An older occurrence is killed after a newer one has failed: the one in doubt is the one that was killed.
func TestHistoryOfAKilledOlderRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		h := w.host(2*time.Second, nil)
		_, err := h.deliver(t.Context(), at, time.Second, errBody)
		require.ErrorIs(t, err, errBody)
		older := at.Add(-time.Minute)
		runAndKill(t, h, older, time.Second)
		time.Sleep(10 * time.Second)
		hist, err := w.host(2*time.Second, nil).job.History(t.Context())
		require.NoError(t, err)
		require.Equal(t, at, hist.Started, "a mark does not go back")
		require.Equal(t, singleton.InDoubt, hist.Runs[0].Outcome)
		require.Equal(t, older, hist.Runs[0].Occurrence)
	})
}

func TestForeignValuesAreNoLedger(t *testing.T) {
	for _, value := range []string{
		"hello", "s2 1:ran:1:1:1", "s1 1:ran:1", "s1 x:ran:1:1:1", "s1 0:ran:1:1:1", "s1 1:ran:0:1:1", "s1 1:ran:1:1:-1",
		"s1 1:sang:1:1:1", "s1 1:ran:1:1:9223372036854775807", "\x00\xff\xfe", "s1 " + strings.Repeat("9", 400),
	} {
		s := memlease.New()
		c, err := lease.New(s, &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
		require.NoError(t, err)
		l, err := c.TryAcquire(t.Context(), jobName)
		require.NoError(t, err)
		require.NoError(t, l.ReleaseWith(t.Context(), lease.Final{Value: []byte(value)}))
		job, err := singleton.New(c, jobName, &singleton.Options{Policy: singleton.AtMostOnce})
		require.NoError(t, err)
		hist, err := job.History(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, hist.Fault, lease.ErrMisconfigured, value)
		require.Empty(t, hist.Runs)

		res, err := job.Run(t.Context(), time.Now(), func(context.Context, *lease.Lease) error { return nil })
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
		hist, err = job.History(t.Context())
		require.NoError(t, err)
		require.NoError(t, hist.Fault, "replaced")
		require.Len(t, hist.Runs, 1)
	}
}

func FuzzLedger(f *testing.F) {
	f.Add([]byte("s1 1772431200:ran:42:1772431201250:200 1772434800:failed:43:1772434800250:1"))
	f.Add([]byte("s1 1772431200:cleared:42:1772431201250:0"))
	f.Add([]byte("s1 -1:ran:42:0:0"))
	f.Add([]byte("s1" + strings.Repeat(" 9223372036854775807:refused:9223372036854775807:9223372036854775807:9223372036854", 6)))
	f.Add([]byte("hello"))
	f.Fuzz(func(t *testing.T, value []byte) {
		if len(value) > lease.MaxValue {
			value = value[:lease.MaxValue]
		}
		c, err := lease.New(memlease.New(), &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
		require.NoError(t, err)
		l, err := c.TryAcquire(t.Context(), jobName)
		require.NoError(t, err)
		require.NoError(t, l.ReleaseWith(t.Context(), lease.Final{Value: value}))
		job, err := singleton.New(c, jobName, nil)
		require.NoError(t, err)
		before, err := job.History(t.Context())
		require.NoError(t, err)
		_, err = job.Run(t.Context(), time.Now(), func(context.Context, *lease.Lease) error { return nil })
		require.NoError(t, err)
		after, err := job.History(t.Context())
		require.NoError(t, err)
		require.NoError(t, after.Fault)
		require.NotEmpty(t, after.Runs)
		kept := after.Runs[1:]
		require.LessOrEqual(t, len(kept), len(before.Runs))
		for i, run := range kept {
			require.Equal(t, before.Runs[i], run, "what fits is kept as it was")
		}
	})
}

// A bogus occurrence makes every other stale; Clear brings the marks back to what the history says.
func TestClearOfABogusOccurrence(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for _, policy := range []singleton.Policy{singleton.AtLeastOnce, singleton.AtMostOnce} {
			o := &singleton.Options{Policy: policy}
			h := w.host(2*time.Second, o)
			genuine := w.until("2026-03-02T06:00:00Z").Add(map[singleton.Policy]time.Duration{singleton.AtMostOnce: time.Hour}[policy])
			time.Sleep(time.Until(genuine))
			_, err := h.deliver(t.Context(), genuine, 100*time.Millisecond, nil)
			require.NoError(t, err)
			bogus := genuine.Add(50 * time.Second)
			_, err = h.deliver(t.Context(), bogus, 100*time.Millisecond, nil)
			require.NoError(t, err)
			next := genuine.Add(10 * time.Second)
			res, err := h.deliver(t.Context(), next, 100*time.Millisecond, nil)
			require.NoError(t, err)
			require.Equal(t, singleton.Stale, res.Outcome)

			require.NoError(t, h.job.Clear(t.Context(), bogus))
			hist, err := h.job.History(t.Context())
			require.NoError(t, err)
			require.Equal(t, genuine, hist.Finished)
			require.Equal(t, genuine, hist.Started)
			require.Equal(t, singleton.Cleared, hist.Runs[0].Outcome)
			for _, c := range []struct {
				at   time.Time
				want singleton.Outcome
			}{
				{genuine, singleton.AlreadyDone},
				{genuine.Add(-time.Second), singleton.Stale},
				{next, singleton.Ran},
				{next, singleton.AlreadyDone},
			} {
				res, err = h.deliver(t.Context(), c.at, 100*time.Millisecond, nil)
				require.NoError(t, err)
				require.Equal(t, c.want, res.Outcome, c.at)
			}

			// Cleared twice, with nothing known before it: everything may run again.
			require.NoError(t, h.job.Clear(t.Context(), next))
			require.NoError(t, h.job.Clear(t.Context(), genuine))
			res, err = h.deliver(t.Context(), genuine, 100*time.Millisecond, nil)
			require.NoError(t, err)
			require.Equal(t, singleton.Ran, res.Outcome)
		}
	})
}

// What an earlier Clear has made void does not come back with a later one.
func TestClearTwice(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		first := w.until("2026-03-02T06:00:00Z")
		h := w.host(2*time.Second, nil)
		second, third := first.Add(10*time.Second), first.Add(20*time.Second)
		for _, at := range []time.Time{first, second} {
			_, err := h.deliver(t.Context(), at, time.Second, nil)
			require.NoError(t, err)
		}
		require.NoError(t, h.job.Clear(t.Context(), second))
		_, err := h.deliver(t.Context(), third, time.Second, nil)
		require.NoError(t, err)
		require.NoError(t, h.job.Clear(t.Context(), third))
		hist, err := h.job.History(t.Context())
		require.NoError(t, err)
		require.Equal(t, first, hist.Finished)
		res, err := h.deliver(t.Context(), second, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
	})
}

func TestClearRefusesWhileTheJobRuns(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, o := range modes {
			at = at.Add(time.Hour)
			time.Sleep(time.Until(at))
			h, operator := w.host(2*time.Second, &o), w.host(2*time.Second, &o)
			res, err := h.job.Run(t.Context(), at, func(ctx context.Context, _ *lease.Lease) error {
				err := operator.job.Clear(ctx, at)
				require.ErrorIs(t, err, lease.ErrHeld)
				require.ErrorContains(t, err, "the job runs")
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, singleton.Ran, res.Outcome)
			res, err = h.deliver(t.Context(), at, time.Second, nil)
			require.NoError(t, err)
			require.Equal(t, singleton.AlreadyDone, res.Outcome, "nothing was cleared")
			require.ErrorIs(t, operator.job.Clear(t.Context(), time.Time{}), lease.ErrInvalid)
		}
	})
}

func TestOptionsReportAllFaultsAtOnce(t *testing.T) {
	c, err := lease.New(memlease.New(), nil)
	require.NoError(t, err)
	_, err = singleton.New(nil, jobName, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)

	_, err = singleton.New(c, "bad\nname", &singleton.Options{
		Policy: "sometimes", Wait: -time.Second, EveryOccurrence: true, Keep: time.Hour, OnUnavailable: "hope",
	})
	require.ErrorIs(t, err, lease.ErrInvalid)
	for _, part := range []string{"control character", "sometimes", "-1s", "1h", "hope"} {
		require.ErrorContains(t, err, part)
	}
	for name, o := range map[string]singleton.Options{
		"exclude each other": {Policy: singleton.AtMostOnce, OnUnavailable: singleton.RunUnguarded},
		"no effect":          {Keep: 48 * time.Hour},
	} {
		_, err = singleton.New(c, jobName, &o)
		require.ErrorContains(t, err, name)
	}
	_, err = singleton.New(c, strings.Repeat("n", 255), nil)
	require.NoError(t, err)
	_, err = singleton.New(c, strings.Repeat("n", 225), &singleton.Options{EveryOccurrence: true})
	require.ErrorContains(t, err, "224 bytes")
	job, err := singleton.New(c, strings.Repeat("n", 224), &singleton.Options{EveryOccurrence: true})
	require.NoError(t, err)
	require.Equal(t, 48*time.Hour, job.Options().Keep)
	require.Equal(t, singleton.AtLeastOnce, job.Options().Policy)
	require.Equal(t, singleton.Fail, job.Options().OnUnavailable)
	require.Len(t, job.Name(), 224)
}

// poor is a store without marks and records.
type poor struct{ lease.Store }

func (p poor) Limits() lease.Limits {
	l := p.Store.Limits()
	l.Marks = false
	return l
}

func TestStoresThatCannotKeepALedger(t *testing.T) {
	c, err := lease.New(poor{memlease.New()}, nil)
	require.NoError(t, err)
	_, err = singleton.New(c, jobName, nil)
	require.ErrorContains(t, err, "marks")
	_, err = singleton.New(c, jobName, &singleton.Options{EveryOccurrence: true})
	require.ErrorContains(t, err, "records")
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.NotContains(t, fmt.Sprint(err), "marks", "it needs records only")
}
