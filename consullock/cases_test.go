package consullock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// TestCO01_WhoComesNext: a session ends at twice its TTL, and the lock-delay follows; not after a release.
func TestCO01_WhoComesNext(t *testing.T) {
	for _, delay := range []time.Duration{5 * time.Second, 15 * time.Second, -1} {
		t.Run(delay.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(consulfake.Options{})
				w := &world{config: s.config, prefix: "cloudlease/", virtual: true}
				ten, so := lease.Options{TTL: 10 * time.Second}, consullock.Options{LockDelay: delay}
				var cut hole
				a, b := w.clientWith(t, ten, so, cut.wrap), w.clientWith(t, ten, so, nil)

				l := acquire(t, a, "x")
				began := time.Now()
				time.AfterFunc(15*time.Second, func() { require.NoError(t, l.Release(context.Background())) })
				next, err := b.Acquire(t.Context(), "x")
				require.NoError(t, err)
				require.Less(t, time.Since(began), 16*time.Second, "a release is followed by no lock-delay")
				require.NoError(t, next.Release(t.Context()))

				time.Sleep(time.Hour) // the sessions have ended meanwhile
				l = acquire(t, a, "x")
				cut.set(all) // at once: its last good request is the acquire
				r := time.Now()
				lost := make(chan time.Duration, 1)
				go func() { <-l.Done(); lost <- time.Since(r) }()
				next, err = b.Acquire(t.Context(), "x")
				require.NoError(t, err)
				took := time.Since(r)
				require.GreaterOrEqual(t, took, 20*time.Second+max(delay, 0))
				require.LessOrEqual(t, took, 23*time.Second+max(delay, 0))
				require.LessOrEqual(t, <-lost, 10*time.Second)
				cut.set(nil)
				require.Greater(t, next.Token(), l.Token())
				require.NoError(t, next.Release(t.Context()))
			})
		})
	}
}

// TestCO01_TheFormerHolderWaitsToo: it is told that a lock-delay goes on and for how long, and does not ask too often.
func TestCO01_TheFormerHolderWaitsToo(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		sent := &counter{}
		a := w.clientWith(t, lease.Options{}, consullock.Options{LockDelay: 15 * time.Second}, sent.wrap)
		st := a.Store().(*consullock.Store)
		l := acquire(t, a, "x")
		time.Sleep(1100 * time.Millisecond)
		_, err := w.root.Session().Destroy(w.session(t, "x"), nil)
		require.NoError(t, err)
		began := time.Now()
		awaitLoss(t, l, 2*time.Second)
		_, err = a.TryAcquire(t.Context(), "x")
		held, ok := errors.AsType[*lease.HeldError](err)
		require.True(t, ok, "%v", err)
		require.ErrorContains(t, err, "lock-delay")
		require.Positive(t, held.RetryAfter)
		require.LessOrEqual(t, held.RetryAfter, 15*time.Second)
		d, err := st.Details(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, lease.Dead, d.State)
		require.Empty(t, d.Session)
		require.Positive(t, d.LockDelay)
		require.LessOrEqual(t, d.LockDelay, 15*time.Second)
		sent.take()
		again, err := a.Acquire(t.Context(), "x")
		require.NoError(t, err)
		took := time.Since(began)
		require.GreaterOrEqual(t, took, 14*time.Second)
		require.Less(t, took, 18*time.Second)
		require.LessOrEqual(t, strings.Count(sent.take(), "txn"), int(took/time.Second)+2, "at most one a second")
		require.Greater(t, again.Token(), l.Token())
		require.NoError(t, again.Release(t.Context()))
	})
}

func TestCO01_TTLBelowTheService(t *testing.T) {
	st, err := consullock.New(configAt("127.0.0.1:1", http.DefaultTransport), nil)
	require.NoError(t, err)
	_, err = lease.New(st, &lease.Options{TTL: 9 * time.Second})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "10s")
	synctest.Test(t, func(t *testing.T) { // and where the servers ask for more than this store was told
		s := newService(consulfake.Options{MinTTL: 20 * time.Second})
		_, err := s.host(t, consullock.Options{}).TryAcquire(t.Context(), request("x"))
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "session_ttl_min")
	})
}

// TestCO03_DestroyedSession is a: the loss is seen at once, and not at the next renewal, by all leases of the session.
func TestCO03_DestroyedSession(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		sent := &counter{}
		c := w.client(t, lease.Options{TTL: 15 * time.Second}, sent.wrap)
		var all []*lease.Lease
		for i := range 100 { // more than are watched by their keys
			all = append(all, acquire(t, c, fmt.Sprint("x", i)))
		}
		time.Sleep(7 * time.Second) // renewed 2 s ago
		sent.take()
		_, err := w.root.Session().Destroy(w.session(t, "x0"), nil)
		require.NoError(t, err)
		for _, l := range all {
			awaitLoss(t, l, 2*time.Second)
		}
		require.Less(t, len(strings.Fields(sent.take())), len(all), "those that are not watched are told by the session")
		for _, l := range all {
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 18*time.Second) // the lock-delay is 15 s
		defer cancel()
		again, err := c.Acquire(ctx, "x0")
		require.NoError(t, err, "the same client goes on")
		require.Greater(t, again.Token(), all[0].Token())
		require.NoError(t, again.Release(t.Context()))
	})
}

// TestCO03_CriticalCheck is b, with a session that was asked to end with a check, and d's failing creation.
func TestCO03_CriticalCheck(t *testing.T) {
	if !engines() {
		return
	}
	a, err := shared()
	require.NoError(t, err)
	t.Parallel()
	w := &world{prefix: newReal(t, a, consullock.Options{}).opt.Prefix, config: func(wrap func(http.RoundTripper) http.RoundTripper) *api.Config {
		cfg := a.config(t, wrap)
		cfg.Token = rootToken
		return cfg
	}}
	w.root, err = api.NewClient(w.config(nil))
	require.NoError(t, err)
	check := func(status string) {
		_, err := w.root.Catalog().Register(&api.CatalogRegistration{
			Node: "locks-only", Address: "127.0.0.1", Check: &api.AgentCheck{Node: "locks-only", CheckID: "up", Name: "up", Status: status},
		}, nil)
		require.NoError(t, err)
	}
	check("passing")
	c := w.clientWith(t, lease.Options{}, consullock.Options{Node: "locks-only", Checks: []string{"up"}, LockDelay: -1}, nil)
	l := acquire(t, c, "x")
	time.Sleep(1500 * time.Millisecond)
	check("critical")
	awaitLoss(t, l, 2*time.Second)
	_, err = c.TryAcquire(t.Context(), "x")
	requireClass(t, err, lease.ErrUnavailable)
	check("passing")
	again := acquire(t, c, "x")
	require.Greater(t, again.Token(), l.Token())
	require.NoError(t, again.Release(t.Context()))
}

// TestCO03_NoLeaderForAWhile is e: no loss.
func TestCO03_NoLeaderForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		c := s.host(t, consullock.Options{}).client(t, nil)
		l := acquire(t, c, "x")
		time.Sleep(ttl / 3)
		s.SetLeader(false)
		time.Sleep(2 * time.Second)
		s.SetLeader(true)
		time.Sleep(3 * ttl)
		require.NoError(t, l.Err())
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestCO03_DataLost is d: the token would fall, and the acquire fails closed until the floor is raised.
func TestCO03_DataLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		s.SetIndex(1000)
		st := s.host(t, consullock.Options{}).Store
		c := clientOf(t, st, nil)
		l := acquire(t, c, "x")
		time.Sleep(1500 * time.Millisecond)
		s.lost.Store(consulfake.New(&consulfake.Options{MinTTL: time.Second}))
		awaitLoss(t, l, ttl)
		_, err := c.TryAcquire(t.Context(), "x")
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, fmt.Sprintf("raise its floor to %d or higher", l.Token()))
		info, err := c.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, lease.Free, info.State, "it was given back at once")
		require.NoError(t, st.RaiseFloor(t.Context(), "x", l.Token()))
		again := acquire(t, c, "x")
		require.Greater(t, again.Token(), l.Token())
		require.NoError(t, again.Release(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestCO04_NoSessionIsLeft behind by tries that failed, were canceled, or were released.
func TestCO04_NoSessionIsLeft(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		sessions := func() []*api.SessionEntry {
			list, _, err := w.root.Session().List(nil)
			require.NoError(t, err)
			var ours []*api.SessionEntry
			for _, s := range list {
				if strings.Contains(s.Name, "locks in "+w.prefix) {
					ours = append(ours, s)
				}
			}
			return ours
		}
		a := w.client(t, lease.Options{Holder: "host-a:17"}, nil)
		l := acquire(t, a, "x")

		slow := &slowdown{}
		b := w.client(t, lease.Options{}, slow.wrap)
		for range 200 {
			_, err := b.TryAcquire(t.Context(), "x")
			require.ErrorIs(t, err, lease.ErrHeld)
		}
		require.Len(t, sessions(), 2, "one for each client")
		slow.set(500 * time.Millisecond)
		for i := range 20 { // in the middle: before the session is there, and after
			c := w.client(t, lease.Options{}, slow.wrap)
			ctx, cancel := context.WithTimeout(t.Context(), []time.Duration{100 * time.Millisecond, 700 * time.Millisecond}[i%2])
			_, err := c.TryAcquire(ctx, fmt.Sprint("y", i))
			cancel()
			require.Error(t, err)
			require.NoError(t, c.Close(t.Context()))
		}
		slow.set(0)
		for range 50 {
			require.NoError(t, acquire(t, b, "z").Release(t.Context()))
		}
		require.NoError(t, b.Close(t.Context()))
		left := sessions()
		require.Len(t, left, 1, "that of the holder")
		require.Contains(t, left[0].Name, "cloudlease host-a:17:")
		require.Equal(t, "release", left[0].Behavior)
		require.NotEmpty(t, left[0].TTL)
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, a.Close(t.Context()))
		require.Empty(t, sessions())
	})
}
