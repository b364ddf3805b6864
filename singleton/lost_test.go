package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/singleton"
)

// A fence refuses the write of a run that was cut off and overtaken: PP-01 as a job sees it.
func TestRefusedWriteIsAnOutcomeOfItsOwn(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		guard := memlease.New().Guard()
		slow := w.host(2*time.Second, nil)
		var wg sync.WaitGroup
		var res singleton.Result
		var err error
		wg.Go(func() {
			res, err = slow.job.Run(t.Context(), at, func(_ context.Context, l *lease.Lease) error {
				slow.wire.intercept(func(_ context.Context, op string, _ func() error) error { return unavailable(op) })
				time.Sleep(time.Minute) // cut off, and deaf to its context
				err := guard.Put(t.Context(), "ledger", []byte("old"), l.Token(), l.Holder())
				return fmt.Errorf("write the ledger: %w", err)
			})
		})
		time.Sleep(30 * time.Second)
		next, nextErr := w.host(2*time.Second, nil).job.Run(t.Context(), at, func(ctx context.Context, l *lease.Lease) error {
			return guard.Put(ctx, "ledger", []byte("new"), l.Token(), l.Holder())
		})
		require.NoError(t, nextErr)
		require.Equal(t, singleton.Ran, next.Outcome)
		wg.Wait()
		require.Equal(t, singleton.Refused, res.Outcome)
		require.ErrorIs(t, err, lease.ErrStale)
		require.ErrorIs(t, err, lease.ErrLost)
		have, err := guard.Get(t.Context(), "ledger")
		require.NoError(t, err)
		require.Equal(t, "new", string(have.Value))
		require.Equal(t, next.Token, have.Token)
	})
}

// A body that returns nil although its lease was lost has not run to the end under the lock.
func TestLostInMidRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		for _, c := range []struct {
			name     string
			overtake bool // another host runs the occurrence meanwhile
			body     error
		}{
			{"overtaken, returns nil", true, nil},
			{"overtaken, fails", true, errBody},
			{"cut off, returns nil", false, nil},
			{"cut off, fails", false, errBody},
		} {
			at = at.Add(10 * time.Minute)
			time.Sleep(time.Until(at))
			slow := w.host(2*time.Second, nil)
			var wg sync.WaitGroup
			var res singleton.Result
			var err error
			wg.Go(func() {
				res, err = slow.job.Run(t.Context(), at, func(ctx context.Context, _ *lease.Lease) error {
					slow.wire.intercept(func(_ context.Context, op string, _ func() error) error { return unavailable(op) })
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), lease.ErrLost) {
						t.Errorf("%s: the cause is %v", c.name, context.Cause(ctx))
					}
					time.Sleep(time.Minute)
					slow.wire.intercept(nil)
					return c.body
				})
			})
			time.Sleep(30 * time.Second)
			if c.overtake {
				res, err := w.host(2*time.Second, nil).deliver(t.Context(), at, time.Second, nil)
				require.NoError(t, err)
				require.Equal(t, singleton.Ran, res.Outcome)
			}
			wg.Wait()
			require.Equal(t, singleton.Lost, res.Outcome, c.name)
			require.ErrorIs(t, err, lease.ErrLost, c.name)
			if c.body != nil {
				require.ErrorIs(t, err, c.body, c.name)
			}
			// What was done under a lease that nobody took since counts as done; what failed does not.
			again, err := w.host(2*time.Second, nil).deliver(t.Context(), at, time.Second, nil)
			require.NoError(t, err)
			want := singleton.AlreadyDone
			if !c.overtake && c.body != nil {
				want = singleton.Ran
			}
			require.Equal(t, want, again.Outcome, c.name)
		}
	})
}

// Client.Close takes the lock from a run that goes on: its work is not recorded, and it is told.
func TestClosedInMidRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		h := w.host(2*time.Second, nil)
		res, err := h.job.Run(t.Context(), at, func(ctx context.Context, _ *lease.Lease) error {
			require.NoError(t, h.client.Close(t.Context()))
			require.Error(t, ctx.Err())
			return nil
		})
		require.ErrorIs(t, err, lease.ErrReleased)
		require.Equal(t, singleton.Lost, res.Outcome)
		res, err = w.host(2*time.Second, nil).deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
	})
}
