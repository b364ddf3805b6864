package lambdalease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lambdalease"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// TestSF05d_AnswersBeforeTheDeadline: 3 s left, the occurrence runs elsewhere with a lease of 10 s. Whatever the Wait, the
// answer comes at least the reserve before the deadline; by default half of the time is left for a run.
func TestSF05d_AnswersBeforeTheDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		wait time.Duration
		want float64
	}{
		"half of the time": {0, 1},
		"for ever":         {time.Hour, 2},
		"not at all":       {-1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *cloud) {
				holder := w.client(t, 10*time.Second, nil)
				l, err := holder.TryAcquireMark(t.Context(), job, lease.Mark{Occurrence: time.Now().Unix()})
				require.NoError(t, err)
				h := w.function(t, settle, &lambdalease.Options{Singleton: singleton.Options{Wait: c.wait}})
				began := time.Now()
				_, err = invoke(t, h, 3*time.Second, rule)
				require.ErrorIs(t, err, lease.ErrHeld)
				require.ErrorIs(t, err, singleton.ErrRunning)
				require.InDelta(t, c.want, time.Since(began).Seconds(), 0.1)
				require.NoError(t, l.Release(t.Context()))
			})
		})
	}
}

// TestSF10_TakesOverWithinTheInvocation: the run dies, and the retry that waits still has the time to run.
func TestSF10_TakesOverWithinTheInvocation(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		dead := c.client(t, 6*time.Second, func(op string, do func() error) error {
			if op == "acquire" {
				return do()
			}
			return errors.New("killed")
		})
		l, err := dead.TryAcquireMark(t.Context(), job, lease.Mark{Occurrence: time.Now().Unix()})
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		out, err := invoke(t, c.function(t, settle, nil), 15*time.Second, rule)
		require.NoError(t, err)
		require.JSONEq(t, `{"total":42,"at":"2026-03-02T06:00:00Z"}`, out)
		require.Error(t, l.Release(t.Context()))
	})
}

// TestSF05e_TheHandlerEndsBeforeTheDeadline: it would take 10 s, has 3, and its context ends after 2.
func TestSF05e_TheHandlerEndsBeforeTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		began := time.Now()
		var ended time.Duration
		h := c.function(t, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				ended = time.Since(began)
				return context.Cause(ctx)
			case <-time.After(10 * time.Second):
				return nil
			}
		}, nil)
		_, err := invoke(t, h, 3*time.Second, rule)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1s")
		require.Equal(t, 2*time.Second, ended)
		require.Less(t, time.Since(began), 3*time.Second)
		ops := c.sent()
		require.Equal(t, "release", ops[len(ops)-1])
	})
}

// A handler that ignores its context keeps the lock until it returns: nothing is released behind its back.
func TestDeafHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		h := c.function(t, func(context.Context) error {
			time.Sleep(20 * time.Second)
			if slices.Contains(c.sent(), "release") {
				return errors.New("released behind the handler's back")
			}
			return nil
		}, nil)
		_, err := invoke(t, h, 3*time.Second, rule)
		require.NoError(t, err)
		require.Equal(t, []string{"release"}, c.sent())
	})
}

// An environment is frozen as soon as the answer is posted: nothing may be left to send, whatever the outcome.
func TestNothingRunsWhileFrozen(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		for i, handler := range []any{
			settle, func() error { return errors.New("boom") }, func() { time.Sleep(10 * time.Second) },
		} {
			event := fmt.Sprintf(`{"source":"aws.events","occurrence":%q}`, time.Now().Format(time.RFC3339))
			_, err := invoke(t, c.function(t, handler, nil), time.Minute, event)
			require.Equal(t, i == 1, err != nil, err)
			ops := c.sent()
			require.Equal(t, "release", ops[len(ops)-1], "answered, not only begun")
			time.Sleep(time.Minute)
			require.Empty(t, c.sent(), "frozen")
		}
	})
}

func TestTooLittleTime(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		_, err := invoke(t, c.function(t, settle, nil), time.Second, rule)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "time-out")
		require.Empty(t, c.sent())
		_, err = invoke(t, c.function(t, settle, &lambdalease.Options{Reserve: 200 * time.Millisecond}), 2*time.Second, rule)
		require.NoError(t, err)
		m := lines(t, &c.metrics)
		require.EqualValues(t, 1, m[0]["not_run"])
		require.EqualValues(t, 1, m[1]["ran"])
	})
}

// TestSF05a_StopSignal sends this process a real SIGTERM in mid-run. The handler's context ends first; the release follows
// its return.
func TestSF05a_StopSignal(t *testing.T) {
	c := newCloud()
	began, late := make(chan struct{}), errors.New("released before the handler returned")
	h := c.function(t, func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		if slices.Contains(c.sent(), "release") {
			return late
		}
		return context.Cause(ctx)
	}, nil)
	go func() {
		<-began
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM) // the handler waits for it
	}()
	_, err := invoke(t, h, time.Minute, fmt.Sprintf(`{"occurrence":%q}`, time.Now().Format(time.RFC3339)))
	require.ErrorContains(t, err, "terminated")
	require.NotErrorIs(t, err, late)
	require.Equal(t, []string{"release"}, c.sent())
}
