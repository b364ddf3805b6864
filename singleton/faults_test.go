package singleton_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// modes are the ways to run a job; each keeps its promise under every fault.
var modes = map[string]singleton.Options{
	"at least once":        {Policy: singleton.AtLeastOnce},
	"at most once":         {Policy: singleton.AtMostOnce},
	"at least once, every": {Policy: singleton.AtLeastOnce, EveryOccurrence: true},
	"at most once, every":  {Policy: singleton.AtMostOnce, EveryOccurrence: true},
}

// atOp calls fault instead of the n-th operation from now on, counted from 1. It tells whether it has come to that.
func atOp(h *host, n int64, fault func(ctx context.Context, op string, do func() error) error) (reached func() bool) {
	var count atomic.Int64
	h.wire.intercept(func(ctx context.Context, op string, do func() error) error {
		if op == "wait" || count.Add(1) != n {
			return do()
		}
		return fault(ctx, op, do)
	})
	return func() bool { return count.Load() >= n }
}

// TestCrashAtEveryStep kills the process before and after the effect of each of its requests. The platform delivers again
// until it gets a success or is told to give up.
func TestCrashAtEveryStep(t *testing.T) {
	for name, o := range modes {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, effect %v", name, effect), func(t *testing.T) {
				onEveryStore(t, func(t *testing.T, w *world) {
					at := w.until("2026-03-02T06:00:00Z")
					for step := int64(1); ; step++ {
						at = at.Add(10 * time.Minute)
						time.Sleep(time.Until(at))
						if !crashAt(t, w, &o, at, step, effect) {
							require.Greater(t, step, int64(2), "acquire and release at least")
							return
						}
					}
				})
			})
		}
	}
}

// crashAt runs the job for at, dies at the given request, and delivers again. It is false if there was no such request.
func crashAt(t *testing.T, w *world, o *singleton.Options, at time.Time, step int64, effect bool) bool {
	t.Helper()
	h := w.host(2*time.Second, o)
	reached := atOp(h, step, func(_ context.Context, op string, do func() error) error {
		if effect {
			_ = do() // nobody hears the answer
		}
		h.kill()
		return unavailable(op)
	})
	_, _ = h.deliver(t.Context(), at, 100*time.Millisecond, nil) // its process may be dead
	if !reached() {
		return false
	}
	res, err := deliverUntilDecided(t, w, o, at)
	runs := w.journal.of(at)
	done := 0
	for _, run := range runs {
		if run.done {
			done++
		}
	}
	switch res.Outcome {
	case singleton.Ran, singleton.AlreadyDone:
		require.NoError(t, err)
		require.GreaterOrEqual(t, done, 1, "step %d: recorded as done, but no body came to its end", step)
	case singleton.InDoubt:
		require.Equal(t, singleton.AtMostOnce, o.Policy)
	default:
		t.Fatalf("step %d: %s, %v", step, res.Outcome, err)
	}
	if o.Policy == singleton.AtMostOnce {
		require.LessOrEqual(t, len(runs), 1, "step %d: started twice", step)
	}
	return true
}

// deliverUntilDecided delivers every 10 s, to a fresh process each time, as a platform does after an error.
func deliverUntilDecided(t *testing.T, w *world, o *singleton.Options, at time.Time) (res singleton.Result, err error) {
	t.Helper()
	for range 10 {
		time.Sleep(10 * time.Second)
		res, err = w.host(2*time.Second, o).deliver(t.Context(), at, 100*time.Millisecond, nil)
		if err == nil || res.Outcome == singleton.InDoubt {
			return res, err
		}
	}
	return res, err
}

// TestOneLostMessageAtEveryStep: a request or an answer that is lost once changes nothing, because each is sent again.
func TestOneLostMessageAtEveryStep(t *testing.T) {
	for name, o := range modes {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, effect %v", name, effect), func(t *testing.T) {
				onEveryStore(t, func(t *testing.T, w *world) {
					at := w.until("2026-03-02T06:00:00Z")
					for step := int64(1); ; step++ {
						at = at.Add(10 * time.Minute)
						time.Sleep(time.Until(at))
						h := w.host(6*time.Second, &o)
						reached := atOp(h, step, func(_ context.Context, op string, do func() error) error {
							if effect {
								_ = do() // the answer is lost
								return unanswered(op)
							}
							return unavailable(op)
						})
						res, err := h.deliver(t.Context(), at, 100*time.Millisecond, nil)
						require.NoError(t, err, "step %d", step)
						require.Equal(t, singleton.Ran, res.Outcome)
						require.NoError(t, res.Release)
						res, err = w.host(6*time.Second, &o).deliver(t.Context(), at, 100*time.Millisecond, nil)
						require.NoError(t, err, "step %d", step)
						require.Equal(t, singleton.AlreadyDone, res.Outcome)
						require.Len(t, w.journal.of(at), 1)
						if !reached() {
							return
						}
					}
				})
			})
		}
	}
}

// The acquire's answers are all lost: the body does not run, and the next delivery knows what the policy allows.
func TestAcquireInDoubt(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, c := range []struct {
			policy singleton.Policy
			next   singleton.Outcome
		}{{singleton.AtLeastOnce, singleton.Ran}, {singleton.AtMostOnce, singleton.InDoubt}} {
			at = at.Add(10 * time.Minute)
			time.Sleep(time.Until(at))
			o := &singleton.Options{Policy: c.policy}
			h := w.host(2*time.Second, o)
			h.wire.intercept(func(_ context.Context, op string, do func() error) error {
				err := do()
				if op == "acquire" {
					return unanswered(op)
				}
				return err
			})
			res, err := h.deliver(t.Context(), at, time.Second, nil)
			require.ErrorIs(t, err, lease.ErrInDoubt)
			require.Equal(t, singleton.NotRun, res.Outcome)
			time.Sleep(time.Second) // it is given back in the background
			hist, err := w.host(2*time.Second, o).job.History(t.Context())
			require.NoError(t, err)
			require.Nil(t, hist.Running)
			require.Equal(t, singleton.InDoubt, hist.Runs[0].Outcome, "granted and given back, and nothing tells that no body ran")
			require.Equal(t, at, hist.Runs[0].Occurrence)
			res, err = w.host(2*time.Second, o).deliver(t.Context(), at, time.Second, nil)
			require.Equal(t, c.next, res.Outcome)
			require.Equal(t, c.next == singleton.InDoubt, err != nil, err)
		}
	})
}

// The work is done, but the store never hears of it: the documented limit of every such package.
func TestReleaseIsNeverStored(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, c := range []struct {
			policy singleton.Policy
			effect bool
			next   singleton.Outcome
		}{
			{singleton.AtLeastOnce, false, singleton.Ran},
			{singleton.AtMostOnce, false, singleton.InDoubt},
			{singleton.AtLeastOnce, true, singleton.AlreadyDone},
			{singleton.AtMostOnce, true, singleton.AlreadyDone},
		} {
			at = at.Add(10 * time.Minute)
			time.Sleep(time.Until(at))
			o := &singleton.Options{Policy: c.policy}
			h := w.host(2*time.Second, o)
			h.wire.intercept(func(_ context.Context, op string, do func() error) error {
				if op != "release" {
					return do()
				}
				if c.effect {
					_ = do() // its answer is lost
				}
				return unanswered(op)
			})
			res, err := h.deliver(t.Context(), at, time.Second, nil)
			require.NoError(t, err, "the body's outcome stands")
			require.Equal(t, singleton.Ran, res.Outcome)
			require.ErrorIs(t, res.Release, lease.ErrInDoubt)
			time.Sleep(20 * time.Second)
			res, err = w.host(2*time.Second, o).deliver(t.Context(), at, time.Second, nil)
			require.Equal(t, c.next, res.Outcome)
			require.Equal(t, c.next == singleton.InDoubt, err != nil, err)
		}
	})
}

func TestUnavailableStore(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, every := range []bool{false, true} {
			out := func(o singleton.Options, fault func(string) error) *host {
				o.EveryOccurrence = every
				h := w.host(2*time.Second, &o)
				h.wire.intercept(func(_ context.Context, op string, _ func() error) error { return fault(op) })
				return h
			}
			before := len(w.journal.occurrences())
			res, err := out(singleton.Options{}, unavailable).deliver(t.Context(), at, time.Second, nil)
			require.ErrorIs(t, err, lease.ErrUnavailable)
			require.Equal(t, singleton.NotRun, res.Outcome)
			require.Len(t, w.journal.occurrences(), before)

			unguarded := singleton.Options{OnUnavailable: singleton.RunUnguarded}
			for _, result := range []error{nil, errBody} {
				res, err = out(unguarded, unavailable).deliver(t.Context(), at, time.Second, result)
				require.Equal(t, result, err)
				require.True(t, res.Unguarded)
				require.Zero(t, res.Token)
			}
			require.Len(t, w.journal.occurrences(), before+2)

			denied := func(op string) error { return &lease.Error{Op: op, Class: lease.ErrDenied} }
			res, err = out(unguarded, denied).deliver(t.Context(), at, time.Second, nil)
			require.ErrorIs(t, err, lease.ErrDenied, "a mistake is not an outage")
			require.False(t, res.Unguarded)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			res, err = out(unguarded, unavailable).deliver(ctx, at, time.Second, nil)
			require.Error(t, err)
			require.False(t, res.Unguarded)
			require.Len(t, w.journal.occurrences(), before+2)
		}
	})
}

// A lock that was seen held is not run past, even if the store is out a moment later.
func TestRunUnguardedRespectsAHolderItHasSeen(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		runAndKill(t, w.host(6*time.Second, nil), at, time.Second)
		h := w.host(6*time.Second, &singleton.Options{OnUnavailable: singleton.RunUnguarded, Wait: time.Minute})
		time.AfterFunc(2*time.Second, func() {
			h.wire.intercept(func(_ context.Context, op string, _ func() error) error { return unavailable(op) })
		})
		res, err := h.deliver(t.Context(), at, time.Second, nil)
		require.ErrorIs(t, err, lease.ErrUnavailable)
		require.False(t, res.Unguarded)
		require.Equal(t, singleton.NotRun, res.Outcome)
		require.Len(t, w.journal.of(at), 1)
	})
}
