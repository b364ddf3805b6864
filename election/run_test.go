package election_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/lease"
)

// A resignation hands over at the waiter's next look, not after the TTL.
func TestResigningHandsOver(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(obey)
		leads(t, time.Second, a)
		b := w.host("b", setup{}).run(obey)
		time.Sleep(10 * ttl)
		left := time.Now()
		require.NoError(t, a.leave())
		require.Zero(t, time.Since(left), "lead returns at once, and so does Run")
		_, took := leads(t, poll+100*time.Millisecond, b)
		t.Logf("handed over in %v", took)
	})
}

// A leader that returns resigns, and stands back so that another leads.
func TestReturningResigns(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		resign := make(chan struct{})
		a := w.host("a", setup{}).run(func(ctx context.Context, _ *lease.Lease) error {
			select {
			case <-resign:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		leads(t, time.Second, a)
		b := w.host("b", setup{}).run(obey)
		time.Sleep(2 * ttl)
		resign <- struct{}{}
		leads(t, poll+100*time.Millisecond, b)
		require.NoError(t, b.leave())
		leads(t, ttl, a) // it stands again
	})
}

func TestACrashedLeaderIsFollowed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(obey)
		leads(t, time.Second, a)
		b := w.host("b", setup{}).run(obey)
		time.Sleep(2 * ttl)
		a.crash()
		_, took := leads(t, 2*ttl+3*time.Second, b)
		require.Greater(t, took, ttl/2)
		require.NotEqual(t, election.Leading, a.e.Status().State)
	})
}

var errBroken = errors.New("the rebalancer is broken")

// The error of a lead that failed while it led is Run's, and the lock is free.
func TestAnErrorOfLeadEndsRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(func(context.Context, *lease.Lease) error { return errBroken })
		<-a.ended
		require.Equal(t, errBroken, a.err)
		info, err := a.client.Inspect(t.Context(), office)
		require.NoError(t, err)
		require.Equal(t, lease.Free, info.State)
		require.Equal(t, election.Stopped, a.e.Status().State)
		a.run(obey) // again, after it has returned
		leads(t, time.Second, a)
	})
}

// A fence has refused the leader: there is another one already, and this one stands again.
func TestAStaleLeaderStandsAgain(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		first := true
		a := w.host("a", setup{}).run(func(ctx context.Context, l *lease.Lease) error {
			if first {
				first = false
				return lease.ErrStale
			}
			return obey(ctx, l)
		})
		time.Sleep(2 * ttl)
		leads(t, time.Second, a)
		require.Len(t, w.book.all(), 2)
	})
}

// A lead that fails because its lease was lost, in whatever words, has not failed: its candidate stands again.
func TestAFailureAfterALoss(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(func(ctx context.Context, _ *lease.Lease) error {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), lease.ErrLost) {
				return errBroken
			}
			return ctx.Err()
		})
		leads(t, time.Second, a)
		a.wire.set(dead)
		time.Sleep(2 * ttl)
		a.wire.set(open)
		leads(t, 2*ttl, a)
		require.Len(t, w.book.all(), 2)
		require.Equal(t, 1, a.count(lease.Lost))
	})
}

// What lead says because it was told to stop is no failure, whichever way it was told; a failure of its own is.
func TestTheErrorOfAStop(t *testing.T) {
	for name, c := range map[string]struct {
		lead election.Lead
		want error
	}{
		"the context's error": {lead: func(ctx context.Context, _ *lease.Lease) error { <-ctx.Done(); return ctx.Err() }},
		"its cause":           {lead: func(ctx context.Context, _ *lease.Lease) error { <-ctx.Done(); return context.Cause(ctx) }},
		"nothing":             {lead: func(ctx context.Context, _ *lease.Lease) error { <-ctx.Done(); return nil }},
		"a failure": {
			lead: func(ctx context.Context, _ *lease.Lease) error { <-ctx.Done(); return errBroken }, want: errBroken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, w *world) {
				a := w.host("a", setup{}).run(c.lead)
				leads(t, time.Second, a)
				require.Equal(t, c.want, a.leave())
			})
		})
	}
}

// Run's context ends while the candidate stands, waits, stands back, and while it releases.
func TestStoppingAtAnyTime(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		resign := func(context.Context, *lease.Lease) error { return nil }
		for _, after := range []time.Duration{0, time.Nanosecond, time.Second, 3 * time.Second, 10 * time.Second} {
			a := w.host("a", setup{}).run(resign)
			b := w.host("b", setup{}).run(resign)
			time.Sleep(after)
			began := time.Now()
			require.NoError(t, a.leave())
			require.NoError(t, b.leave())
			require.Less(t, time.Since(began), time.Second)
			info, err := a.client.Inspect(t.Context(), office)
			require.NoError(t, err)
			require.NotEqual(t, lease.Held, info.State, "after %v", after)
		}
	})
}

// A release that is not answered does not keep Run from returning.
func TestStoppingWhileReleasing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(obey)
		leads(t, time.Second, a)
		a.wire.set(black)
		began := time.Now()
		require.NoError(t, a.leave())
		require.Less(t, time.Since(began), 3*a.client.Options().CallTimeout+2*time.Second)
		require.Equal(t, 1, a.count(lease.ReleaseFailed))
	})
}

// The acquire under way when ctx ends was granted, unheard: it is given back, and lead is not called.
func TestStoppingInTheMiddleOfAnAcquire(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{})
		a.wire.set(mute)
		a.run(obey)
		time.Sleep(time.Second)
		a.wire.set(open)
		require.NoError(t, a.leave())
		require.Empty(t, w.book.all())
		info, err := a.client.Inspect(t.Context(), office)
		require.NoError(t, err)
		require.NotEqual(t, lease.Held, info.State)
	})
}

// A store that is out is no reason to give up; one that refuses is.
func TestErrorsOfTheStore(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{})
		a.wire.set(dead)
		a.run(obey)
		time.Sleep(time.Hour)
		require.Error(t, a.e.Status().Err)
		requests := a.wire.take()["acquire"]
		require.Less(t, requests, 5*3600, "no storm")
		a.wire.set(open)
		leads(t, 2*ttl, a)
		require.NoError(t, a.e.Status().Err)
		require.NoError(t, a.leave())

		refuse := &lease.Error{Op: "acquire", Class: lease.ErrDenied}
		b := w.host("b", setup{})
		b.wire.Store = denied{b.wire.Store, refuse}
		b.run(obey)
		<-b.ended
		require.ErrorIs(t, b.err, lease.ErrDenied)
	})
}

type denied struct {
	lease.Store
	err error
}

func (d denied) TryAcquire(context.Context, lease.Request) (lease.Grant, error) {
	return lease.Grant{}, d.err
}

func (d denied) Clock() lease.Clock { return d.Store.(lease.Clocked).Clock() }

func TestAClosedClient(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(obey)
		leads(t, time.Second, a)
		require.NoError(t, a.client.Close(t.Context()))
		<-a.ended
		require.ErrorIs(t, a.err, lease.ErrClosed)
	})
}

func TestRunTwice(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(obey)
		leads(t, time.Second, a)
		require.ErrorIs(t, a.e.Run(t.Context(), obey), lease.ErrInvalid)
		require.ErrorIs(t, a.e.Run(t.Context(), nil), lease.ErrInvalid)
		leads(t, 0, a)
	})
}

// A goroutine that ends instead of returning is a failure, and the lock is given back.
func TestLeadEndsItsGoroutine(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(func(context.Context, *lease.Lease) error { runtime.Goexit(); return nil })
		<-a.ended
		require.ErrorContains(t, a.err, "without returning")
		info, err := a.client.Inspect(t.Context(), office)
		require.NoError(t, err)
		require.Equal(t, lease.Free, info.State)
	})
}

// ctx ends when the lock has just been granted: it is given back, and lead is not called.
func TestStoppingAtTheGrant(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{})
		a.wire.Store = granting{a.wire.Store, func() { a.stop(errStop) }}
		a.run(obey)
		<-a.ended
		require.NoError(t, a.err)
		require.Equal(t, 1, a.count(lease.Acquired))
		require.Equal(t, 1, a.count(lease.Released))
		require.Empty(t, w.book.all())
	})
}

// granting calls then between the store's answer and its arrival.
type granting struct {
	lease.Store
	then func()
}

func (g granting) TryAcquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	defer g.then()
	return g.Store.TryAcquire(ctx, r)
}

func (g granting) Clock() lease.Clock { return g.Store.(lease.Clocked).Clock() }
