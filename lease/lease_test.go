package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// inBubble runs f in virtual time with a service of its own.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func TestDo(t *testing.T) {
	failed := errors.New("the body failed")
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		require.NoError(t, c.Do(t.Context(), "x", func(ctx context.Context, l *lease.Lease) error {
			in, ok := lease.FromContext(ctx)
			require.True(t, ok)
			require.Same(t, l, in)
			require.Equal(t, lease.Held, w.state("x"))
			return nil
		}))
		require.Equal(t, lease.Free, w.state("x"))
		require.Equal(t, failed, c.Do(t.Context(), "x", func(context.Context, *lease.Lease) error { return failed }))
		require.Equal(t, lease.Free, w.state("x"))
		require.Panics(t, func() {
			_ = c.Do(t.Context(), "x", func(context.Context, *lease.Lease) error { panic("in the body") }) // panics
		})
		require.Equal(t, lease.Free, w.state("x"), "a body that panics keeps the lock")
		require.ErrorIs(t, c.Do(t.Context(), "", nil), lease.ErrInvalid)
	})
}

func TestDoTellsOfALoss(t *testing.T) {
	failed := errors.New("the body failed")
	for name, body := range map[string]error{"body succeeds": nil, "body fails": failed} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				err := w.client(lease.Options{}).Do(t.Context(), "x", func(ctx context.Context, _ *lease.Lease) error {
					w.faults.Add(leasetest.Rule{Kind: leasetest.BlackHole})
					<-ctx.Done()
					require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
					return body
				})
				require.ErrorIs(t, err, lease.ErrLost)
				if body != nil {
					require.ErrorIs(t, err, body)
					require.Equal(t, body.Error(), err.Error()[:len(body.Error())], "the body's error comes first")
				}
			})
		})
	}
}

func TestDoWhoseReleaseFails(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.faults.Add(leasetest.Rule{Kind: leasetest.Fail, Op: "release", Failure: leasetest.Denied})
		err := w.client(lease.Options{}).Do(t.Context(), "x", func(context.Context, *lease.Lease) error { return nil })
		require.NoError(t, err, "the work is done, and the lock ends by itself")
		require.Len(t, w.told(lease.ReleaseFailed), 1)
		require.ErrorIs(t, w.told(lease.ReleaseFailed)[0].Err, lease.ErrDenied)
	})
}

func TestBodyMayReleaseItself(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		err := w.client(lease.Options{}).Do(t.Context(), "x", func(ctx context.Context, l *lease.Lease) error {
			require.NoError(t, l.Release(ctx))
			require.ErrorIs(t, context.Cause(ctx), lease.ErrReleased)
			return nil
		})
		require.NoError(t, err)
	})
}

func TestContexts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		l := w.acquire(c, "x")
		parent, cancelParent := context.WithCancelCause(t.Context())
		ofParent, cancel := l.Context(parent)
		defer cancel()
		own, cancelOwn := l.Context(t.Context())
		other, cancelOther := l.Context(t.Context())
		defer cancelOther()
		cancelOwn()
		require.ErrorIs(t, context.Cause(own), context.Canceled)
		gone := errors.New("the parent is gone")
		cancelParent(gone)
		require.ErrorIs(t, context.Cause(ofParent), gone)
		require.NoError(t, other.Err())
		require.NoError(t, l.Err(), "the end of a context does not end the lease")
		require.NoError(t, l.Release(t.Context()))
		require.ErrorIs(t, context.Cause(other), lease.ErrReleased)
		late, cancelLate := l.Context(t.Context())
		defer cancelLate()
		require.ErrorIs(t, context.Cause(late), lease.ErrReleased, "a context of a lease that is over")
		_, ok := lease.FromContext(t.Context())
		require.False(t, ok)
		in, ok := lease.FromContext(late)
		require.True(t, ok)
		require.Same(t, l, in)
		requireClass(t, lease.ErrReleased, l.Err())
	})
}

func TestReleaseDoesNotInheritCancellation(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{}), "x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, l.Release(ctx))
		require.Equal(t, lease.Free, w.state("x"))
	})
}

func TestReleaseIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		l := w.acquire(c, "x")
		w.faults.Add(leasetest.Rule{Kind: leasetest.BlackHole, Op: "release"})
		began := time.Now()
		err := l.Release(t.Context())
		requireClass(t, lease.ErrInDoubt, err)
		require.LessOrEqual(t, time.Since(began), 3*c.Options().CallTimeout+2*time.Second)
		require.Len(t, w.faults.Calls("release"), 3)
		require.Len(t, w.told(lease.ReleaseFailed), 1)
		requireClass(t, lease.ErrReleased, l.Err())
		require.Equal(t, err, l.Release(t.Context()), "later calls return the first result")
		require.Len(t, w.faults.Calls("release"), 3)
	})
}

func TestReleaseOfALostLeaseIsTriedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{}), "x")
		w.faults.Add(leasetest.Rule{Kind: leasetest.DropRequest})
		<-l.Done()
		requireClass(t, lease.ErrLost, l.Release(t.Context()))
		require.Len(t, w.faults.Calls("release"), 1)
		require.Empty(t, w.told(lease.Released))
	})
}

func TestEverythingAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		for range 20 {
			l := w.acquire(c, "x")
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					if err := l.Save(t.Context(), []byte("v")); err != nil {
						requireClass(t, lease.ErrReleased, err)
					}
				})
				wg.Go(func() {
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("release: %v", err)
					}
				})
				wg.Go(func() {
					ctx, cancel := l.Context(t.Context())
					defer cancel()
					<-ctx.Done()
				})
				wg.Go(func() { _, _, _, _ = l.Err(), l.Value(), l.Deadline(), l.Grant() })
				wg.Go(l.Progress)
			}
			wg.Wait()
			require.Equal(t, lease.Free, w.state("x"))
		}
	})
}

// cutOff is a call whose answer does not come, of a store that passes the cause of a context on as it is.
func cutOff(ctx context.Context) (lease.Grant, error) {
	<-ctx.Done()
	return lease.Grant{}, &lease.Error{Op: "save", Class: lease.ErrInDoubt, Err: context.Cause(ctx)}
}

func TestReleaseCutsASaveOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{}), "x")
		w.store.save = func(ctx context.Context, g lease.Grant, v []byte) (lease.Grant, error) {
			_, err := w.store.Store.Save(ctx, g, v)
			require.NoError(t, err)
			return cutOff(ctx)
		}
		saved := make(chan error, 1)
		go func() { saved <- l.Save(t.Context(), []byte("half")) }()
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		require.NoError(t, l.Release(t.Context()))
		require.Zero(t, time.Since(began))
		requireClass(t, lease.ErrInDoubt, <-saved) // not ErrReleased, which says that nothing was saved
		info, err := w.store.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "half", string(info.Value))
	})
}

// TestLossOfAnOuterLeaseIsNotThatOfAnInnerOne: a save is cut off by the end of a context that has another lease's loss as
// its cause.
func TestLossOfAnOuterLeaseIsNotThatOfAnInnerOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		other := newWorld(t)
		outer := other.acquire(other.client(lease.Options{}), "outer")
		inner := w.acquire(w.client(lease.Options{}), "inner")
		ctx, cancel := outer.Context(t.Context())
		defer cancel()
		other.faults.Add(leasetest.Rule{Kind: leasetest.BlackHole})
		time.Sleep(ttl * 5 / 10)
		w.store.save = func(ctx context.Context, _ lease.Grant, _ []byte) (lease.Grant, error) { return cutOff(ctx) }
		for outer.Err() == nil {
			require.Error(t, inner.Save(ctx, []byte("v")))
		}
		require.Error(t, inner.Save(ctx, []byte("v")))
		w.store.save = nil
		require.NoError(t, inner.Err(), "the inner lease took the loss of the outer one for its own")
		require.NoError(t, inner.Save(t.Context(), []byte("v")))
		require.NoError(t, inner.Release(t.Context()))
		require.ErrorIs(t, outer.Release(t.Context()), lease.ErrLost)
	})
}
