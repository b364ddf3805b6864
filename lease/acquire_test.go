package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestAcquireGivesUpOnAnOutageAfterOneTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		w.faults.Add(leasetest.Rule{Kind: leasetest.Fail, Failure: leasetest.Throttled})
		began := time.Now()
		_, err := c.Acquire(t.Context(), "x")
		requireClass(t, lease.ErrUnavailable, err)
		require.Greater(t, time.Since(began), ttl)
		require.Less(t, time.Since(began), 2*ttl)
	})
}

func TestAcquireReturnsWhatTryingAgainCannotMend(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.faults.Add(leasetest.Rule{Kind: leasetest.Fail, Failure: leasetest.Denied})
		began := time.Now()
		_, err := w.client(lease.Options{}).Acquire(t.Context(), "x")
		requireClass(t, lease.ErrDenied, err)
		require.Zero(t, time.Since(began))
		require.Len(t, w.faults.Calls(""), 1)
		require.Len(t, w.told(lease.StoreFailed), 1)
	})
}

func TestAcquireWithAnEndedContextSendsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		cause := errors.New("no more interest")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		_, err := w.client(lease.Options{}).Acquire(ctx, "x")
		requireClass(t, lease.ErrUnavailable, err)
		require.ErrorIs(t, err, cause)
		require.Empty(t, w.faults.Calls(""))
		require.Empty(t, w.told(lease.Abandoned))
	})
}

// TestContextThatEndsBetweenTwoTries: nothing is under way then, and the error still says who holds the lock.
func TestContextThatEndsBetweenTwoTries(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{}), "x")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, err := lease.New(waker{w.store.Store, func(context.Context, *lease.HeldError) error { return nil }},
			&lease.Options{TTL: ttl, Observer: lease.ObserverFunc(func(e lease.Event) {
				if e.Kind == lease.Contended {
					w.faults.Add(leasetest.Rule{Kind: leasetest.Fail, Failure: leasetest.Throttled})
				}
				if e.Kind == lease.StoreFailed {
					cancel() // it was asked once more, in vain
				}
			})})
		require.NoError(t, err)
		_, err = c.Acquire(ctx, "x")
		requireClass(t, lease.ErrHeld, err)
		require.ErrorIs(t, err, context.Canceled)
		held, ok := errors.AsType[*lease.HeldError](err)
		require.True(t, ok)
		require.Equal(t, l.Token(), held.Token)
		require.NoError(t, c.Close(t.Context()))
	})
}

func TestAcquiredTellsHowLongItTook(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		l := w.acquire(c, "x")
		time.AfterFunc(ttl, func() { _ = l.Release(t.Context()) })
		next, err := c.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.Greater(t, w.told(lease.Acquired)[1].Took, ttl-time.Second)
		require.Equal(t, next.Token(), w.told(lease.Acquired)[1].Token)
		require.NotEmpty(t, w.told(lease.Contended))
	})
}

// TestRefusalAfterALostAnswer: the second try finds the lock held; the first may still arrive, and is given back.
func TestRefusalAfterALostAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.faults.Add(leasetest.Rule{Kind: leasetest.DropRequest, Op: "acquire", Nth: 1})
		held := w.acquire(w.client(lease.Options{Holder: "first"}), "x")
		w.faults.Add(leasetest.Rule{Kind: leasetest.DropRequest, Op: "acquire", Nth: 1})
		_, err := w.client(lease.Options{}).TryAcquire(t.Context(), "x")
		requireClass(t, lease.ErrHeld, err)
		time.Sleep(time.Millisecond)
		require.Len(t, w.told(lease.Abandoned), 1)
		require.NoError(t, w.told(lease.Abandoned)[0].Err, "there was nothing to give back")
		require.NoError(t, held.Err())
		require.Equal(t, lease.Held, w.state("x"))
	})
}

func TestGiveBackThatFailsIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.faults.Add(leasetest.Rule{Kind: leasetest.DropAnswer, Op: "acquire"})
		w.faults.Add(leasetest.Rule{Kind: leasetest.Fail, Op: "release", Failure: leasetest.Throttled})
		_, err := w.client(lease.Options{}).TryAcquire(t.Context(), "x")
		requireClass(t, lease.ErrInDoubt, err)
		require.ErrorContains(t, err, "given back in the background or ends after its TTL")
		require.Len(t, w.faults.Calls("acquire"), 3)
		time.Sleep(3 * time.Second)
		require.Len(t, w.told(lease.Abandoned), 1)
		require.ErrorIs(t, w.told(lease.Abandoned)[0].Err, lease.ErrUnavailable)
		require.Len(t, w.faults.Calls("release"), 2)
		require.Equal(t, lease.Held, w.state("x"))
		time.Sleep(ttl)
		require.Equal(t, lease.Dead, w.state("x"), "it ends by itself")
	})
}

func TestCloseWaitsForWhatIsGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		w.faults.Add(leasetest.Rule{Kind: leasetest.DelayAfter, Op: "acquire", Delay: ttl})
		slow := w.faults.Add(leasetest.Rule{Kind: leasetest.DelayBefore, Op: "release", Delay: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.TryAcquire(ctx, "x")
		requireClass(t, lease.ErrInDoubt, err)
		require.Equal(t, lease.Held, w.state("x"))
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, 1, slow.Fired())
		require.Equal(t, lease.Free, w.state("x"))
		require.Equal(t, 1, w.store.closed)
	})
}

func TestCloseIsBoundedByItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		w.faults.Add(leasetest.Rule{Kind: leasetest.BlackHole, Op: "acquire"})
		go func() { _, _ = c.TryAcquire(t.Context(), "x") }()
		time.Sleep(time.Millisecond)
		cause := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, cause)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, c.Close(ctx), cause)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		require.Equal(t, 1, w.store.closed, "the store is closed all the same")
		time.Sleep(2 * ttl)
	})
}

// TestCloseOfAStoreThatHangsIsBounded: what a store gives back when it is closed may be swallowed.
func TestCloseOfAStoreThatHangsIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.store.close = func(ctx context.Context) error { <-ctx.Done(); return lease.Cause(ctx) }
		c := w.client(lease.Options{})
		began := time.Now()
		require.ErrorIs(t, c.Close(context.Background()), context.DeadlineExceeded)
		require.Equal(t, 3*c.Options().CallTimeout, time.Since(began))
	})
}

func TestCloseDuringAnAcquire(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		w.faults.Add(leasetest.Rule{Kind: leasetest.DelayAfter, Op: "acquire", Delay: time.Second})
		got := make(chan error, 1)
		go func() {
			_, err := c.TryAcquire(t.Context(), "x")
			got <- err
		}()
		time.Sleep(time.Millisecond)
		require.NoError(t, c.Close(t.Context()))
		requireClass(t, lease.ErrClosed, <-got)
		require.Equal(t, lease.Free, w.state("x"), "what was granted to a closed client is given back")
		require.Len(t, w.told(lease.Acquired), 1, "each release that is told follows a grant that was told")
		require.Len(t, w.told(lease.Released), 1)
	})
}

func TestCloseReportsWhatItCannotRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(lease.Options{})
		w.acquire(c, "x")
		w.acquire(c, "y")
		w.faults.Add(leasetest.Rule{Kind: leasetest.Fail, Op: "release", Nth: 1, Failure: leasetest.Denied})
		require.ErrorIs(t, c.Close(t.Context()), lease.ErrDenied)
		require.NotEqual(t, w.state("x"), w.state("y"))
	})
}

// waker is a store that wakes its waiters.
type waker struct {
	*memlease.Store
	wait func(context.Context, *lease.HeldError) error
}

func (s waker) Wait(ctx context.Context, h *lease.HeldError) error { return s.wait(ctx, h) }

func TestWaiterDecidesWhenToTryAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.acquire(w.client(lease.Options{}), "x")
		waits := 0
		failures := []error{nil, &lease.Error{Op: "wait", Class: lease.ErrUnavailable}, nil}
		c, err := lease.New(waker{w.store.Store, func(_ context.Context, h *lease.HeldError) error {
			require.Equal(t, l.Token(), h.Token)
			time.Sleep(10 * time.Second)
			if waits++; waits == 3 {
				require.NoError(t, l.Release(t.Context()))
			}
			return failures[waits-1]
		}}, &lease.Options{TTL: ttl, Observer: w})
		require.NoError(t, err)
		next, err := c.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, 3, waits)
		require.Greater(t, next.Token(), l.Token())
		require.NoError(t, c.Close(t.Context()))
	})
}

func TestWaiterThatCannotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.acquire(w.client(lease.Options{}), "x")
		c, err := lease.New(waker{w.store.Store, func(context.Context, *lease.HeldError) error {
			return &lease.Error{Op: "wait", Class: lease.ErrDenied}
		}}, &lease.Options{TTL: ttl, Observer: w})
		require.NoError(t, err)
		_, err = c.Acquire(t.Context(), "x")
		requireClass(t, lease.ErrDenied, err)
		require.NoError(t, c.Close(t.Context()))
	})
}

func TestWaitersDoNotStormAHolderWhoseEndIsNear(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		asked := 0
		w.store.acquire = func(context.Context, lease.Request) (lease.Grant, error) {
			asked++
			return lease.Grant{}, &lease.HeldError{Name: "x", RetryAfter: time.Millisecond}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := w.client(lease.Options{}).Acquire(ctx, "x")
		requireClass(t, lease.ErrHeld, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, asked, 51, "more than five requests a second")
	})
}

// TestAWaiterThatDoesNotWaitMakesNoStorm: a store calls a lock free that is held.
func TestAWaiterThatDoesNotWaitMakesNoStorm(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.acquire(w.client(lease.Options{}), "x")
		c, err := lease.New(waker{w.store.Store, func(context.Context, *lease.HeldError) error { return nil }},
			&lease.Options{TTL: ttl, Observer: w})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = c.Acquire(ctx, "x")
		requireClass(t, lease.ErrHeld, err)
		require.LessOrEqual(t, len(w.told(lease.Contended)), 63, "more than six attempts a second")
		require.NoError(t, c.Close(t.Context()))
	})
}

func TestMarksNeedAStoreThatKeepsThem(t *testing.T) {
	c, err := lease.New(limits(time.Second, time.Minute, 0), nil)
	require.NoError(t, err)
	_, err = c.TryAcquireMark(t.Context(), "x", lease.Mark{Occurrence: 1})
	requireClass(t, lease.ErrInvalid, err)
	require.ErrorContains(t, err, "a store keeps no marks")
}
