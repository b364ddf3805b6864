package singleton_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

var operator = lease.Reason{By: "ops@desk", Why: "month's end: 100 %"}

// TestPause: no delivery runs while the job is paused, on any host and under any policy; each is a success, costs what a skip costs
// and consumes nothing. After Resume all is as it was.
func TestPause(t *testing.T) {
	for name, o := range map[string]*singleton.Options{
		"at least once": nil, "at most once": {Policy: singleton.AtMostOnce}, "every occurrence": {EveryOccurrence: true},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, w *world) {
				first := w.until("2000-01-01T06:00:00Z")
				a, b := w.host(w.ttl(2*time.Second), o), w.host(w.ttl(2*time.Second), o)
				res, err := a.deliver(t.Context(), first, time.Second, nil)
				require.NoError(t, err)
				require.Equal(t, singleton.Ran, res.Outcome)
				require.NoError(t, b.job.Pause(t.Context(), operator))
				require.NoError(t, a.job.Pause(t.Context(), lease.Reason{By: "another"}), "once more changes nothing")

				second := w.until("2000-01-01T07:00:00Z")
				for _, h := range []*host{a, b} {
					res, err = h.deliver(t.Context(), second, time.Second, nil)
					require.NoError(t, err)
					require.Equal(t, singleton.Paused, res.Outcome)
				}
				h, err := a.job.History(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Fault)
				require.Equal(t, operator.By, h.Paused.By)
				require.Equal(t, operator.Why, h.Paused.Why)
				require.WithinDuration(t, first, h.Paused.Since, 10*time.Second)
				require.Equal(t, singleton.Paused, h.Runs[0].Outcome)
				if o == nil || !o.EveryOccurrence {
					require.Equal(t, first, h.Finished, "what was before the pause is shown")
				}

				require.NoError(t, b.job.Resume(t.Context()))
				require.ErrorIs(t, b.job.Resume(t.Context()), lease.ErrConflict)
				res, err = a.deliver(t.Context(), first, time.Second, nil)
				require.NoError(t, err)
				require.Equal(t, singleton.AlreadyDone, res.Outcome, "what was finished before the pause stays finished")
				res, err = b.deliver(t.Context(), second, time.Second, nil)
				require.NoError(t, err)
				require.Equal(t, singleton.Ran, res.Outcome, "the pause has consumed nothing")
				h, err = b.job.History(t.Context())
				require.NoError(t, err)
				require.Nil(t, h.Paused)
				outcomes := []singleton.Outcome{}
				for _, e := range h.Runs {
					outcomes = append(outcomes, e.Outcome)
				}
				require.Equal(t, []singleton.Outcome{singleton.Ran, singleton.Resumed, singleton.Paused, singleton.Ran}, outcomes)
			})
		})
	}
}

// TestPauseWaitsForTheRun: a run under way ends as if nothing were, and then the job is paused.
func TestPauseWaitsForTheRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2000-01-01T06:00:00Z")
		a, b := w.host(w.ttl(2*time.Second), nil), w.host(w.ttl(2*time.Second), nil)
		ran := make(chan singleton.Outcome, 1)
		go func() {
			res, err := a.deliver(t.Context(), at, 10*time.Second, nil)
			if err != nil {
				res.Outcome = singleton.Outcome(err.Error())
			}
			ran <- res.Outcome
		}()
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, b.job.Pause(short, operator), lease.ErrHeld)
		require.NoError(t, b.job.Pause(t.Context(), operator))
		require.Equal(t, singleton.Ran, <-ran)
		h, err := b.job.History(t.Context())
		require.NoError(t, err)
		require.NotNil(t, h.Paused)
		require.Equal(t, at, h.Finished)
	})
}

// TestPauseOfAKilledRun: what is in doubt stays in doubt over a pause, and Clear keeps the pause.
func TestPauseOfAKilledRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		o := &singleton.Options{Policy: singleton.AtMostOnce}
		at := w.until("2000-01-01T06:00:00Z")
		a, b := w.host(w.ttl(2*time.Second), o), w.host(w.ttl(2*time.Second), o)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = a.deliver(t.Context(), at, time.Hour, nil) // it is killed
		}()
		time.Sleep(time.Second)
		a.kill()
		<-ended
		require.NoError(t, b.job.Pause(t.Context(), operator))
		h, err := b.job.History(t.Context())
		require.NoError(t, err)
		require.Contains(t, outcomesOf(h, at), singleton.InDoubt)

		require.NoError(t, b.job.Resume(t.Context()))
		res, err := b.deliver(t.Context(), at, time.Second, nil)
		require.ErrorIs(t, err, lease.ErrInDoubt)
		require.Equal(t, singleton.InDoubt, res.Outcome)

		require.NoError(t, b.job.Pause(t.Context(), operator))
		require.NoError(t, b.job.Clear(t.Context(), at))
		res, err = b.deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Paused, res.Outcome, "a cleared occurrence waits for the end of the pause")
		require.NoError(t, b.job.Resume(t.Context()))
		res, err = b.deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
	})
}

func outcomesOf(h singleton.History, at time.Time) (outcomes []singleton.Outcome) {
	for _, e := range h.Runs {
		if e.Occurrence.Equal(at) {
			outcomes = append(outcomes, e.Outcome)
		}
	}
	return outcomes
}

// TestPauseThatCannotBeRead: Resume does not guess what was finished before; Clear ends the pause.
func TestPauseThatCannotBeRead(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2000-01-01T06:00:00Z")
		h := w.host(w.ttl(2*time.Second), nil)
		require.NoError(t, h.job.Pause(t.Context(), operator))
		l, err := h.client.TryAcquire(t.Context(), jobName)
		require.NoError(t, err)
		require.NoError(t, l.ReleaseWith(t.Context(), lease.Final{Value: []byte("scribble")}))
		require.ErrorIs(t, h.job.Resume(t.Context()), lease.ErrMisconfigured)
		res, err := h.deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Paused, res.Outcome)
		shown, err := h.job.History(t.Context())
		require.NoError(t, err)
		require.Empty(t, shown.Paused.By)
		require.NoError(t, h.job.Clear(t.Context(), at))
		res, err = h.deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
	})
}

// TestPauseOfWhom: who pauses is said, in a length that leaves room for the history.
func TestPauseOfWhom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, backend: backends[0], connect: backends[0].open(t), journal: &journal{}}
		defer w.close()
		w.until("2000-01-01T06:00:00Z")
		h := w.host(w.ttl(2*time.Second), nil)
		require.ErrorIs(t, h.job.Pause(t.Context(), lease.Reason{Why: "nobody"}), lease.ErrInvalid)
		require.ErrorIs(t, h.job.Pause(t.Context(), lease.Reason{By: "me", Why: strings.Repeat("x", 119)}), lease.ErrInvalid)
		require.NoError(t, h.job.Pause(t.Context(), lease.Reason{By: "me", Why: strings.Repeat("%", 118)}))
		shown, err := h.job.History(t.Context())
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("%", 118), shown.Paused.Why)
	})
}
