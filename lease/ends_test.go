package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
	"github.com/cloudlease/cloudlease/memlease"
)

// A host that was suspended past its deadline (its wall clock says so) looks at its clocks before a renewal that is
// due: the store would prolong a lease that its holder then declares lost, and the lock would stay for one more TTL.
func TestNoRenewalIsSentAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, faults := leasetest.NewClock(), leasetest.NewFaults()
		c, err := lease.New(memlease.NewService().Store(&memlease.Options{Clock: clock.Now, Intercept: faults.Intercept}), &lease.Options{
			TTL: 300 * time.Millisecond, Heartbeat: 50 * time.Millisecond, Observer: lease.ObserverFunc(func(lease.Event) {}),
		})
		require.NoError(t, err)
		l, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(time.Second)
		clock.StepWall(time.Hour)
		before := len(faults.Calls("renew"))
		<-l.Done()
		require.Len(t, faults.Calls("renew"), before, "a renewal was sent after the deadline")
	})
}

// The host wakes from a suspension while a renewal is under way. The renewal's answer finds the deadline passed, and the loss must
// not be told while the lease's turn is held: an observer that releases would wait for that turn for ever.
func TestObserverMayReleaseOnALossFoundByARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := leasetest.NewClock()
		var l atomic.Pointer[lease.Lease]
		done := make(chan struct{})
		st := &hooked{Store: memlease.NewService().Store(&memlease.Options{Clock: clock.Now})}
		st.renew = func(ctx context.Context, g lease.Grant) (lease.Grant, error) {
			next, err := st.Store.Renew(ctx, g)
			clock.StepWall(time.Hour)
			return next, err
		}
		c, err := lease.New(st, &lease.Options{TTL: ttl, Observer: lease.ObserverFunc(func(e lease.Event) {
			if e.Kind == lease.Lost {
				_ = l.Load().Release(context.Background())
				close(done)
			}
		})})
		require.NoError(t, err)
		got, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		l.Store(got)
		select {
		case <-done:
		case <-time.After(time.Hour):
			t.Fatal("Release, called by an observer that is told of the loss, hangs for ever")
		}
	})
}

// Release is the first to look at the clocks after a suspension: the loss must not be told inside of the sync.Once of Release. In real
// time, because a goroutine that waits for its own sync.Once is not durably blocked.
func TestObserverMayReleaseOnALossFoundByRelease(t *testing.T) {
	clock := leasetest.NewClock()
	var l atomic.Pointer[lease.Lease]
	c, err := lease.New(memlease.NewService().Store(&memlease.Options{Clock: clock.Now}), &lease.Options{
		TTL: time.Hour, Observer: lease.ObserverFunc(func(e lease.Event) {
			if e.Kind == lease.Lost {
				_ = l.Load().Release(context.Background())
			}
		}),
	})
	require.NoError(t, err)
	got, err := c.TryAcquire(t.Context(), "x")
	require.NoError(t, err)
	l.Store(got)
	clock.StepWall(2 * time.Hour)
	done := make(chan struct{})
	go func() {
		_ = got.Release(context.Background())
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		t.Fatal("Release, called by an observer that is told of the loss, hangs for ever")
	}
}

// An observer shuts the client down when a lease is lost. The loss was found by the watch, whose look Close must not
// wait for: it would wait for itself.
func TestCloseOnALossFoundByTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := leasetest.NewClock()
		var c atomic.Pointer[lease.Client]
		done := make(chan struct{})
		root, err := lease.New(memlease.NewService().Store(&memlease.Options{Clock: clock.Now}), &lease.Options{
			TTL: time.Hour, Observer: lease.ObserverFunc(func(e lease.Event) {
				if e.Kind == lease.Lost {
					_ = c.Load().Close(context.Background())
					close(done)
				}
			}),
		})
		require.NoError(t, err)
		c.Store(root)
		_, err = root.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(time.Second)
		clock.StepWall(2 * time.Hour)
		select {
		case <-done:
		case <-time.After(time.Hour):
			t.Fatal("Close, called by an observer that is told of a loss, hangs for ever")
		}
	})
}

// Close of a derived client waits for its own work alone: with a busy root, that of all clients never ends.
func TestCloseOfADerivedClientOfABusyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(_ context.Context, _ string, do func() error) error {
			time.Sleep(50 * time.Millisecond)
			return do()
		}
		root, err := lease.New(memlease.NewService().Store(&memlease.Options{Intercept: slow}), &lease.Options{
			TTL: ttl, Observer: lease.ObserverFunc(func(lease.Event) {}),
		})
		require.NoError(t, err)
		derived, err := root.With(lease.Options{TTL: ttl})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 3 { // always one of them is asking
			go func() {
				time.Sleep(time.Duration(20*i) * time.Millisecond)
				for ctx.Err() == nil {
					_, _ = root.TryAcquire(ctx, "x")
				}
			}()
		}
		time.Sleep(time.Second)
		closed := make(chan struct{})
		go func() {
			_ = derived.Close(context.Background())
			close(closed)
		}()
		hung := false
		select {
		case <-closed:
		case <-time.After(10 * time.Minute):
			hung = true
		}
		cancel()
		<-closed
		_ = root.Close(context.Background())
		require.False(t, hung, "the derived client has nothing under way, and its Close waits for the root's attempts")
	})
}
