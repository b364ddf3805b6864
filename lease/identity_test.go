package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// TestNamesakeIsToldOnce: two processes were given one name. Each is a holder of its own, and the one that finds the lock held
// by the other says so, once for each time.
func TestNamesakeIsToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client(lease.Options{Holder: "worker-1"}), w.client(lease.Options{Holder: "worker-1"})
		other := w.client(lease.Options{Holder: "worker"})
		require.NotEqual(t, a.Holder(), b.Holder())
		for range 2 {
			l := w.acquire(a, "x")
			for range 3 {
				_, err := b.TryAcquire(t.Context(), "x")
				require.ErrorIs(t, err, lease.ErrHeld)
				_, err = other.TryAcquire(t.Context(), "x")
				require.ErrorIs(t, err, lease.ErrHeld)
			}
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, w.acquire(b, "x").Release(t.Context()))
		}
		told := w.told(lease.Namesake)
		require.Len(t, told, 2)
		held, ok := errors.AsType[*lease.HeldError](told[0].Err)
		require.True(t, ok)
		require.Equal(t, a.Holder(), held.Holder)
		require.Equal(t, b.Holder(), told[0].Holder)
	})
}

func TestNamesake(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{Holder: "web:1"})
		same, err := c.With(lease.Options{TTL: 2 * ttl})
		require.NoError(t, err)
		require.NotEqual(t, c.Holder(), same.Holder())
		for holder, want := range map[string]bool{
			c.Holder(): false, same.Holder(): false, "web:1:abcdefgh": true, "web:1:abcdefgh.2": true,
			"": false, "web": false, "web:1": false, "web:1:abc": false, "web:2:abcdefgh": false, "web:1:2:cdefgh": false,
		} {
			require.Equal(t, want, c.Namesake(holder), holder)
			require.Equal(t, want, same.Namesake(holder), holder)
		}
	})
}

// TestEachLossTellsItsKind: alarms and metrics need no look at the text.
func TestEachLossTellsItsKind(t *testing.T) {
	for kind, c := range map[lease.LossKind]struct {
		o    lease.Options
		lose func(*world, *lease.Lease)
	}{
		lease.Gone: {lose: func(w *world, l *lease.Lease) { w.service.Delete(l.Name()) }},
		lease.Unrenewed: {lose: func(w *world, _ *lease.Lease) {
			w.faults.Add(leasetest.Rule{Op: "renew", Kind: leasetest.DropRequest})
		}},
		lease.Paused:  {lose: func(w *world, _ *lease.Lease) { w.clock.StepWall(ttl) }},
		lease.Capped:  {o: lease.Options{MaxHold: 2 * ttl}, lose: func(*world, *lease.Lease) {}},
		lease.Idle:    {o: lease.Options{Progress: ttl}, lose: func(*world, *lease.Lease) {}},
		lease.GivenUp: {lose: func(_ *world, l *lease.Lease) { l.Lapse() }},
	} {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				l := w.acquire(w.client(c.o), "x")
				c.lose(w, l)
				<-l.Done()
				told := w.told(lease.Lost)
				require.Len(t, told, 1)
				require.Equal(t, kind, told[0].Loss, told[0].Err)
			})
		})
	}
}

// TestLapseKeepsTheLockToItsEnd: a holder that does not know whether its work has stopped must not let the next one in early.
func TestLapseKeepsTheLockToItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		l := w.acquire(c, "x")
		time.Sleep(ttl + ttl/2) // it has been renewed
		require.NoError(t, l.Err())
		deadline := l.Deadline()
		renewed := len(w.told(lease.Renewed))
		l.Lapse()
		<-l.Done()
		require.WithinDuration(t, deadline, time.Now(), watchEvery)
		require.Len(t, w.told(lease.Renewed), renewed, "no renewal after the lapse")
		require.Equal(t, lease.Held, w.state("x"), "held to the end of its TTL")
	})
}

// watchEvery is how exact the end of a lease is on the wall clock.
const watchEvery = 100 * time.Millisecond

// watched is a store that hears of losses.
type watched struct {
	*hooked
	lost    chan struct{}
	watches int
}

func (s *watched) Watch(ctx context.Context, g lease.Grant) error {
	s.watches++
	select {
	case <-s.lost:
		return &lease.Error{Op: "watch", Name: g.Name, Class: lease.ErrLost}
	case <-ctx.Done():
		return lease.Cause(ctx)
	}
}

// TestAWatchedLossIsKnownAtOnce, and a lock that is held for a moment is not watched.
func TestAWatchedLossIsKnownAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &watched{hooked: w.store, lost: make(chan struct{})}
		c, err := lease.New(s, &lease.Options{TTL: ttl, Observer: w})
		require.NoError(t, err)
		defer c.Close(context.Background()) //nolint:errcheck // what it had is lost
		l := w.acquire(c, "x")
		time.Sleep(900 * time.Millisecond)
		require.NoError(t, l.Release(t.Context()))
		time.Sleep(ttl)
		require.Zero(t, s.watches)

		l = w.acquire(c, "x")
		time.Sleep(2 * ttl)
		require.NoError(t, l.Err())
		require.Equal(t, 1, s.watches)
		began := time.Now()
		close(s.lost)
		<-l.Done()
		require.Zero(t, time.Since(began))
		requireClass(t, lease.ErrLost, l.Err())
		require.Equal(t, lease.Gone, w.told(lease.Lost)[0].Loss)
	})
}

func TestAcquiredTellsItsTries(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client(lease.Options{}), w.client(lease.Options{})
		l := w.acquire(a, "x")
		time.AfterFunc(ttl, func() { _ = l.Release(context.Background()) })
		second, err := b.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, second.Release(t.Context()))
		told := w.told(lease.Acquired)
		require.Len(t, told, 2)
		require.Equal(t, 1, told[0].Tries)
		require.Equal(t, len(w.told(lease.Contended))+1, told[1].Tries)
		require.Greater(t, told[1].Tries, 1)
	})
}
