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

// TestSF05a_TheBodyObeysTheStopSignal: the release is sent after the body's return, never before.
func TestSF05a_TheBodyObeysTheStopSignal(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		h := w.host(6*time.Second, nil)
		ctx, sigterm := context.WithCancel(t.Context())
		var canceled, returned, signaled time.Time
		time.AfterFunc(5*time.Second, func() { signaled = time.Now(); sigterm() })
		res, err := h.job.Run(ctx, at, func(ctx context.Context, _ *lease.Lease) error {
			<-ctx.Done()
			canceled = time.Now()
			time.Sleep(100 * time.Millisecond)
			returned = time.Now()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, singleton.Failed, res.Outcome)
		require.Less(t, canceled.Sub(signaled), 50*time.Millisecond)
		ops := h.wire.take()
		release := ops[len(ops)-1]
		require.Equal(t, "release", release.name)
		require.False(t, release.at.Before(returned))
		require.Less(t, release.at.Sub(signaled), 500*time.Millisecond, "before the kill")
		for _, op := range ops[:len(ops)-1] {
			require.NotEqual(t, "release", op.name)
		}
	})
}

// TestSF05bc_KilledWhileHolding: the body ignores the signal (b) or there is none (c). Nothing is released, and the next
// holder comes only after the last renewal plus TTL, and within the take-over bound.
func TestSF05bc_KilledWhileHolding(t *testing.T) {
	for name, signal := range map[string]bool{"b ignores the signal": true, "c SIGKILL only": false} {
		t.Run(name, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, w *world) {
				const ttl = 6 * time.Second
				at := w.until("2026-03-02T06:00:00Z")
				h := w.host(ttl, nil)
				ctx, sigterm := context.WithCancel(t.Context())
				defer sigterm()
				var wg sync.WaitGroup
				wg.Go(func() {
					_, _ = h.job.Run(ctx, at, func(_ context.Context, l *lease.Lease) error { // its process dies
						end := w.journal.begin(at, l)
						<-h.killed
						end(false)
						return errKilled
					})
				})
				time.Sleep(5 * time.Second)
				if signal {
					sigterm()
					time.Sleep(500 * time.Millisecond)
				}
				h.kill()
				wg.Wait()
				renewed := at
				for _, op := range h.wire.take() {
					require.NotEqual(t, "release", op.name)
					if op.name == "renew" {
						renewed = op.at
					}
				}
				require.True(t, renewed.After(at))

				next := w.host(ttl, &singleton.Options{Wait: time.Minute})
				_, err := next.deliver(t.Context(), at, time.Second, nil)
				require.NoError(t, err)
				taken := w.journal.of(at)[1].begin.Sub(renewed)
				require.GreaterOrEqual(t, taken, ttl)
				require.LessOrEqual(t, taken, 2*ttl+3*time.Second)
			})
		})
	}
}

// TestSF05d_WaitingNearTheDeadline: the lock is held elsewhere for longer than the deadline is away.
func TestSF05d_WaitingNearTheDeadline(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		runAndKill(t, w.host(10*time.Second, nil), at, time.Second) // its lease stands for another 9 s
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second-time.Second)
		defer cancel()
		began := time.Now()
		res, err := w.host(10*time.Second, &singleton.Options{Wait: time.Hour}).deliver(ctx, at, time.Second, nil)
		require.ErrorIs(t, err, lease.ErrHeld)
		require.ErrorIs(t, err, singleton.ErrRunning)
		require.Equal(t, singleton.Running, res.Outcome)
		require.LessOrEqual(t, time.Since(began), 2*time.Second, "the reserve is left")
	})
}

// TestSF05e_TheBodyEndsBeforeTheDeadline: the body would take 10 s, its context ends after 2, the release is sent.
func TestSF05e_TheBodyEndsBeforeTheDeadline(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		h := w.host(6*time.Second, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second-time.Second)
		defer cancel()
		res, err := h.deliver(ctx, at, 10*time.Second, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, singleton.Failed, res.Outcome)
		require.NoError(t, res.Release)
		ops := h.wire.take()
		require.Equal(t, "release", ops[len(ops)-1].name)
		require.Less(t, ops[len(ops)-1].at.Sub(at), 3*time.Second)
	})
}
