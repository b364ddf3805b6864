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

// reentrant: an observer that gives the lease back when it is told of kind; within how long did Release return?
func reentrant(t *testing.T, kind lease.EventKind, fail string) (returned bool) {
	t.Helper()
	var l atomic.Pointer[lease.Lease]
	done := make(chan struct{}, 16)
	var failing atomic.Bool
	st := memlease.NewService().Store(&memlease.Options{Intercept: func(_ context.Context, op string, do func() error) error {
		if failing.Load() && op == fail {
			return &lease.Error{Op: op, Class: lease.ErrDenied}
		}
		return do()
	}})
	c, err := lease.New(st, &lease.Options{TTL: ttl, Observer: lease.ObserverFunc(func(e lease.Event) {
		if e.Kind == kind && l.Load() != nil {
			_ = l.Load().Release(context.Background()) // "outside of all locks"
			done <- struct{}{}
		}
	})})
	require.NoError(t, err)
	got, err := c.TryAcquire(t.Context(), "x")
	require.NoError(t, err)
	l.Store(got)
	failing.Store(true)
	if kind == lease.Released || kind == lease.ReleaseFailed {
		go func() { _ = got.Release(context.Background()) }()
	}
	select {
	case <-done:
		_ = c.Close(context.Background())
		return true
	case <-time.After(time.Hour):
		return false
	}
}

func testReentrant(t *testing.T, kind lease.EventKind, fail string) {
	synctest.Test(t, func(t *testing.T) {
		if !reentrant(t, kind, fail) {
			t.Fatalf("Release, called by an observer that is told %q, hangs for ever", kind)
		}
	})
}

func TestObserverMayReleaseOnRenewed(t *testing.T)     { testReentrant(t, lease.Renewed, "") }
func TestObserverMayReleaseOnRenewFailed(t *testing.T) { testReentrant(t, lease.RenewFailed, "renew") }

func TestObserverMayReleaseOnReleaseFailed(t *testing.T) {
	testReentrant(t, lease.ReleaseFailed, "release")
}
func TestObserverMayReleaseOnReleased(t *testing.T) { testReentrant(t, lease.Released, "") }
func TestObserverMayReleaseOnJeopardy(t *testing.T) { testReentrant(t, lease.Jeopardy, "renew") }

// The keeper's own loss.
func TestObserverMayReleaseOnLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l atomic.Pointer[lease.Lease]
		done := make(chan struct{}, 1)
		svc := memlease.NewService()
		c, err := lease.New(svc.Store(nil), &lease.Options{TTL: ttl, Observer: lease.ObserverFunc(func(e lease.Event) {
			if e.Kind == lease.Lost {
				_ = l.Load().Release(context.Background())
				close(done)
			}
		})})
		require.NoError(t, err)
		got, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		l.Store(got)
		svc.Delete("x")
		select {
		case <-done:
		case <-time.After(time.Hour):
			t.Fatal("Release, called by an observer that is told of the loss, hangs for ever")
		}
	})
}

// "MaxHold ends the renewals of a lease that has been held this long, so that a stuck holder cannot keep it for ever." One that
// saves its progress cannot either.
func TestSaveDoesNotOutliveMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.client(lease.Options{MaxHold: 2 * ttl})
		l := w.acquire(c, "x")
		began := time.Now()
		for l.Err() == nil && time.Since(began) < time.Hour {
			time.Sleep(2 * time.Second)
			_ = l.Save(t.Context(), []byte("."))
		}
		require.Less(t, time.Since(began), 4*ttl)
	})
}

// "Every error of this module matches exactly one of them." Under a lease that is lost, waiting for another gives an error that
// is ErrHeld alone: ErrLost beside it would say that *this* lock is lost.
func TestClassWaitingUnderALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.client(lease.Options{})
		inner := w.client(lease.Options{})
		w.acquire(inner, "inner")
		outer := w.acquire(c, "outer")
		ctx, cancel := outer.Context(t.Context())
		defer cancel()
		time.AfterFunc(time.Second, func() { w.service.Delete("outer") })
		_, err := c.Acquire(ctx, "inner")
		requireClass(t, lease.ErrHeld, err)
	})
}

// The same at the start: nothing was sent for "other", and the error does not say ErrLost.
func TestClassAcquiringUnderALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.client(lease.Options{})
		outer := w.acquire(c, "outer")
		ctx, cancel := outer.Context(t.Context())
		defer cancel()
		w.service.Delete("outer")
		<-ctx.Done()
		_, err := c.TryAcquire(ctx, "other")
		requireClass(t, lease.ErrUnavailable, err)
	})
}

// Save promises ErrLost or ErrReleased when the lease is over, or ErrInDoubt. So does one that waits for its turn:
// ErrUnavailable would say that trying again may help.
func TestClassSaveThatWaitsWhenTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.client(lease.Options{})
		l := w.acquire(c, "x")
		w.faults.Add(leasetest.Rule{Op: "save", Kind: leasetest.BlackHole, Nth: 1})
		go func() { _ = l.Save(context.Background(), []byte("1")) }()
		synctest.Wait()
		second := make(chan error, 1)
		go func() { second <- l.Save(context.Background(), []byte("2")) }()
		synctest.Wait()
		require.NoError(t, l.Release(t.Context()))
		requireClass(t, lease.ErrReleased, <-second)
	})
}

// "Close releases the client's leases, waits for what it gives back in the background": a derived client too.
func TestCloseOfADerivedClientWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		root := w.client(lease.Options{})
		c, err := root.With(lease.Options{TTL: ttl})
		require.NoError(t, err)
		w.faults.Add(leasetest.Rule{Op: "acquire", Kind: leasetest.DelayAfter, Delay: time.Second, Nth: 1})
		w.faults.Add(leasetest.Rule{Op: "release", Kind: leasetest.DelayBefore, Delay: 500 * time.Millisecond, Nth: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = c.TryAcquire(ctx, "x")
		require.ErrorIs(t, err, lease.ErrInDoubt)
		require.NoError(t, c.Close(t.Context()))
		require.NotEqual(t, lease.Held, w.state("x"), "Close has not waited for the give-back")
	})
}

// "ctx bounds the waiting": for the releases as well.
func TestCloseWithAHangingReleaseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.client(lease.Options{TTL: 30 * time.Second})
		w.acquire(c, "x")
		w.faults.Add(leasetest.Rule{Op: "release", Kind: leasetest.BlackHole})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_ = c.Close(ctx)
		took := time.Since(began)
		t.Logf("Close(100 ms) took %v", took)
		require.Less(t, took, time.Second)
	})
}

// Two leases; the machine was suspended (the wall clock has moved on, timers have not). The observer of the first loss is slow
// (a log pipe that is full), and the second lease's contexts end all the same.
func TestSlowObserverDelaysNoOtherLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := leasetest.NewClock()
		var first atomic.Bool
		c, err := lease.New(memlease.NewService().Store(&memlease.Options{Clock: clock.Now}), &lease.Options{
			TTL: time.Minute, Observer: lease.ObserverFunc(func(e lease.Event) {
				if e.Kind == lease.Lost {
					if first.CompareAndSwap(false, true) {
						time.Sleep(15 * time.Second)
					}
				}
			}),
		})
		require.NoError(t, err)
		a, err := c.TryAcquire(t.Context(), "a")
		require.NoError(t, err)
		b, err := c.TryAcquire(t.Context(), "b")
		require.NoError(t, err)
		synctest.Wait() // all that keeps the leases is asleep
		clock.StepWall(2 * time.Minute)
		began := time.Now()
		<-a.Done()
		<-b.Done()
		took := time.Since(began)
		require.NoError(t, c.Settle(t.Context()))
		time.Sleep(time.Minute)
		require.Less(t, took, 500*time.Millisecond, "a process that wakes is to know within 250 ms")
	})
}

// A nil function as observer would end the process at its first event, in whatever goroutine that is.
func TestRefusesNilObserverFunc(t *testing.T) {
	var f func(lease.Event)
	c, err := lease.New(memlease.New(), &lease.Options{Observer: lease.ObserverFunc(f)})
	if err != nil {
		require.ErrorIs(t, err, lease.ErrInvalid)
		return
	}
	require.NotPanics(t, func() { _, _ = c.TryAcquire(t.Context(), "x") })
}

// A typed nil store is ErrInvalid, not a panic.
func TestRefusesTypedNilStore(t *testing.T) {
	var st *memlease.Store
	require.NotPanics(t, func() {
		_, err := lease.New(st, nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}
