package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/lease"
)

// An observer that is no candidate.
func TestWhoLeads(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		o := w.host("o", setup{})
		l, err := o.e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, election.Leader{}, l)

		a := w.host("a", setup{}).run(obey)
		leads(t, time.Second, a)
		l, err = o.e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, election.Leader{Elected: true, Holder: a.e.Holder(), Token: w.book.all()[0].token}, l)

		a.wire.take()
		l, err = a.e.Leader(t.Context())
		require.NoError(t, err)
		require.True(t, l.Self)
		require.Empty(t, a.wire.take(), "the leader knows")

		a.crash()
		time.Sleep(ttl + w.slack)
		l, err = o.e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, election.Leader{}, l, "a dead leader is nobody")

		o.wire.set(dead)
		_, err = o.e.Leader(t.Context())
		require.ErrorIs(t, err, lease.ErrUnavailable)
	})
}

// A leader that is cut off does not call itself leader, though the service still does.
func TestALostLeaderIsNotSelf(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{lease: lease.Options{Margin: 2 * time.Second, Heartbeat: time.Second}}).run(obey)
		leads(t, time.Second, a)
		r := lastRenewal(a)
		a.wire.each(func(op string) int {
			if op == "inspect" {
				return open
			}
			return dead
		})
		time.Sleep(4500*time.Millisecond - time.Since(r))
		info, err := a.client.Inspect(t.Context(), office)
		require.NoError(t, err)
		require.Equal(t, lease.Held, info.State)
		l, err := a.e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, election.Leader{}, l)
	})
}

// Every change is told within a second, in the order of the terms.
func TestChanges(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		o := w.host("o", setup{})
		ctx, cancel := context.WithCancel(t.Context())
		changes := o.e.Changes(ctx)
		require.Equal(t, election.Leader{}, <-changes)
		for range 5 {
			for _, name := range []string{"a", "b"} {
				h := w.host(name, setup{}).run(obey)
				leads(t, ttl, h)
				began := time.Now()
				l := <-changes
				require.Equal(t, h.e.Holder(), l.Holder)
				require.LessOrEqual(t, time.Since(began), time.Second)
				self := <-h.e.Changes(ctx)
				require.True(t, self.Self)
				require.Equal(t, l.Token, self.Token)
				began = time.Now()
				require.NoError(t, h.leave())
				require.Equal(t, election.Leader{}, <-changes)
				require.LessOrEqual(t, time.Since(began), time.Second)
			}
		}
		cancel()
		_, more := <-changes
		require.False(t, more)
	})
}

// A subscriber that does not read blocks nobody, and finds the latest leader when it does.
func TestChangesThatNobodyReads(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{})
		changes := a.e.Changes(t.Context())
		a.run(obey)
		leads(t, time.Second, a)
		for range 10 {
			require.NoError(t, a.leave())
			a.run(obey)
			leads(t, time.Second, a)
		}
		time.Sleep(time.Second)
		l := <-changes
		require.Equal(t, w.book.all()[10].token, l.Token)
		require.True(t, l.Self)
		select {
		case l := <-changes:
			require.Fail(t, "nothing has changed since", "%+v", l)
		case <-time.After(ttl):
		}
	})
}

// A store that is out for a TTL cannot say that the leader still leads.
func TestChangesInAnOutage(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(obey)
		leads(t, time.Second, a)
		o := w.host("o", setup{})
		changes := o.e.Changes(t.Context())
		require.True(t, (<-changes).Elected)
		began := time.Now()
		o.wire.set(dead)
		require.Equal(t, election.Leader{}, <-changes)
		require.InDelta(t, ttl, time.Since(began), float64(time.Second))
		o.wire.set(open)
		require.Equal(t, a.e.Holder(), (<-changes).Holder)
	})
}

// The requests of the package's documentation.
func TestWhatObservingCosts(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(obey)
		leads(t, time.Second, a)
		b := w.host("b", setup{}).run(obey)
		time.Sleep(time.Second)
		a.wire.take()
		b.wire.take()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"renew"}, keys(a.wire.take()))
		require.NotContains(t, b.wire.take(), "inspect", "nobody asked")

		for range 5 {
			a.e.Changes(t.Context())
			b.e.Changes(t.Context())
		}
		time.Sleep(time.Second)
		b.wire.take()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"renew"}, keys(a.wire.take()))
		require.LessOrEqual(t, b.wire.take()["inspect"], 202, "subscribers share their looks")
	})
}

func keys(ops map[string]int) []string {
	var names []string
	for name := range ops {
		names = append(names, name)
	}
	return names
}
