package dynamolock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

var why = lease.Reason{By: "ops@example.com", Why: "stuck since noon"}

// TestGE02_ForcedRelease: an operator ends the grant that was inspected, and no other.
func TestGE02_ForcedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		a, b, op := s.host(t, nil), s.host(t, nil), s.host(t, nil)
		ca, cb := a.client(t, &lease.Options{TTL: 6 * time.Second}), b.client(t, &lease.Options{TTL: 6 * time.Second})
		err := op.Break(t.Context(), "x", 7, why)
		requireClass(t, err, lease.ErrConflict)
		require.ErrorContains(t, err, "no lock of this name was ever taken")

		first, err := ca.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		seen, err := op.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, lease.Held, seen.State)
		require.Nil(t, seen.Broken)
		require.NoError(t, first.Release(t.Context()))
		err = op.Break(t.Context(), "x", seen.Token, why)
		requireClass(t, err, lease.ErrConflict)
		require.ErrorContains(t, err, "it is free")

		second, err := cb.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		err = op.Break(t.Context(), "x", seen.Token, why)
		requireClass(t, err, lease.ErrConflict)
		require.ErrorContains(t, err, cb.Holder(), "the present holder is named")
		require.NoError(t, second.Err())

		errs := make([]error, 2) // twice in parallel: once done, once told that it is free
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = op.Break(t.Context(), "x", second.Token(), why) })
		}
		wg.Wait()
		require.True(t, (errs[0] == nil) != (errs[1] == nil), "%v", errs)
		seen, err = op.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, lease.Free, seen.State)
		require.Equal(t, why.By, seen.Broken.By)
		require.Equal(t, why.Why, seen.Broken.Why)
		require.Equal(t, second.Token(), seen.Broken.Token)
		require.WithinDuration(t, time.Now(), seen.Broken.At, time.Second)

		third, err := ca.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		require.Greater(t, third.Token(), second.Token())
		select {
		case <-second.Done():
		case <-time.After(2*time.Second + time.Second):
			require.Fail(t, "the holder did not learn it within a renewal and a second")
		}
		require.ErrorIs(t, second.Err(), lease.ErrLost)
		require.ErrorIs(t, second.Release(t.Context()), lease.ErrLost)
		require.NoError(t, third.Err())
		require.NoError(t, third.Release(t.Context()))
		require.NoError(t, ca.Close(t.Context()))
		require.NoError(t, cb.Close(t.Context()))
	})
}

func TestBreakAsksForAllItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newService(t).host(t, nil)
		for _, err := range []error{
			h.Break(t.Context(), "x", 0, why),
			h.Break(t.Context(), "x", 7, lease.Reason{Why: "no name"}),
			h.Break(t.Context(), "x", 7, lease.Reason{By: "me", Why: string(make([]byte, 600))}),
			h.RaiseFloor(t.Context(), "x", 0),
			h.RaiseFloor(t.Context(), "x", lease.MaxToken),
			h.RaiseFloor(t.Context(), "", 7),
		} {
			requireClass(t, err, lease.ErrInvalid)
		}
		require.Empty(t, h.sent.take())
	})
}

// TestRaiseFloor: the next token is above the floor, whatever the record was.
func TestRaiseFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		h := s.host(t, nil)
		floor := lease.Token(time.Now().Add(1000 * time.Hour).UnixMilli())
		require.NoError(t, h.RaiseFloor(t.Context(), "new", floor))
		require.Equal(t, floor+1, try(t, h, "new", "1").Token)

		g := try(t, h, "x", "2")
		err := h.RaiseFloor(t.Context(), "x", floor)
		requireClass(t, err, lease.ErrHeld)
		require.NoError(t, h.Release(t.Context(), g, lease.Final{Value: []byte("kept")}))
		require.NoError(t, h.RaiseFloor(t.Context(), "x", floor))
		require.NoError(t, h.RaiseFloor(t.Context(), "x", floor-5), "reached already")
		g = try(t, s.host(t, nil), "x", "3")
		require.Equal(t, floor+1, g.Token)
		require.Equal(t, "kept", string(g.Value))

		crash(t, s, "dead", 3*time.Second)
		time.Sleep(6 * time.Second)
		require.NoError(t, h.RaiseFloor(t.Context(), "dead", floor))
		require.Equal(t, floor+1, try(t, h, "dead", "4").Token)
	})
}
