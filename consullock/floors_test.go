package consullock_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

const lockOfX = "cloudlease/locks/x/lock"

// TestFloors counts what goes over the wire.
func TestFloors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		a, b := s.host(t, consullock.Options{}), s.host(t, consullock.Options{})
		ca, cb := a.client(t, nil), b.client(t, nil)

		l := acquire(t, ca, "x")
		require.Equal(t, "create txn", a.sent.take(), "the first, with its session")
		require.NoError(t, l.Release(t.Context()))
		require.Equal(t, "txn", a.sent.take(), "release")
		l = acquire(t, ca, "x")
		require.Equal(t, "txn", a.sent.take(), "free")
		_, err := cb.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, lease.ErrHeld)
		require.Equal(t, "create txn", b.sent.take(), "fail fast, the first with its session")
		_, err = cb.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, lease.ErrHeld)
		require.Equal(t, "txn", b.sent.take(), "fail fast")
		require.NoError(t, l.Save(t.Context(), []byte("v")))
		require.Equal(t, "txn", a.sent.take(), "save")
		time.Sleep(900 * time.Millisecond)
		require.Empty(t, a.sent.take(), "a lease that is held for a moment is not watched")
		time.Sleep(1500*time.Millisecond - 900*time.Millisecond)
		require.Equal(t, "get wait", a.sent.take(), "the watch")
		time.Sleep(1200 * time.Millisecond)
		require.ElementsMatch(t, []string{"renew", "txn"}, strings.Fields(a.sent.take()), "one renewal in a third of the TTL")
		_, err = cb.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "txn", b.sent.take(), "inspect")

		got := make(chan *lease.Lease)
		go func() {
			next, err := cb.Acquire(t.Context(), "x")
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			got <- next
		}()
		time.Sleep(50 * time.Second)
		require.Equal(t, "txn get wait", b.sent.take(), "a waiter: one read, then one blocking query a minute")
		a.sent.take()
		require.NoError(t, l.ReleaseWith(t.Context(), lease.Final{Value: []byte("w")}))
		require.Equal(t, "txn", a.sent.take(), "release that leaves something")
		next := <-got
		require.Equal(t, "w", string(next.Value()))
		require.Equal(t, "create txn", b.sent.take(), "woken; its session has ended meanwhile")

		c := s.host(t, consullock.Options{}) // whose holder dies
		g, err := c.TryAcquire(t.Context(), request("dead"))
		require.NoError(t, err)
		time.Sleep(3*ttl + time.Second)
		b.sent.take()
		dead := acquire(t, cb, "dead")
		require.Equal(t, "txn", b.sent.take(), "take dead")
		require.Greater(t, dead.Token(), g.Token)
		require.NoError(t, next.Release(t.Context()))
		require.NoError(t, dead.Release(t.Context()))

		now := time.Now().Unix()
		b.sent.take()
		job, err := cb.TryAcquireMark(t.Context(), "x", lease.Mark{Occurrence: now})
		require.NoError(t, err)
		require.Equal(t, "txn txn", b.sent.take(), "an occurrence: a read and a transaction")
		require.NoError(t, job.ReleaseWith(t.Context(), lease.Final{Marks: &lease.Marks{Started: now, Finished: now}}))
		b.sent.take()
		_, err = cb.TryAcquireMark(t.Context(), "x", lease.Mark{Occurrence: now})
		require.ErrorIs(t, err, lease.ErrPassed)
		require.Equal(t, "txn", b.sent.take(), "an occurrence that has passed")
		require.NoError(t, acquire(t, ca, "x").Release(t.Context()))
		a.sent.take()
		require.NoError(t, ca.Close(t.Context()))
		require.Equal(t, "destroy", a.sent.take(), "close")
		require.NoError(t, cb.Close(t.Context()))
	})
}

// TestManyLeasesOneRenewal: what a client renews does not grow with its leases, and each is trusted from a round's send.
func TestManyLeasesOneRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{1, 2, 60, 130} {
			s := newService(consulfake.Options{})
			h := s.host(t, consullock.Options{})
			c := h.client(t, nil)
			var all []*lease.Lease
			for i := range n {
				all = append(all, acquire(t, c, fmt.Sprint("x", i)))
				time.Sleep(7 * time.Millisecond)
			}
			time.Sleep(2 * ttl)
			h.sent.take()
			began := time.Now()
			for time.Since(began) < 30*ttl {
				time.Sleep(ttl / 7)
				for _, l := range all {
					require.NoError(t, l.Err())
				}
			}
			renewals := strings.Count(h.sent.take(), "renew")
			t.Logf("%d leases: %d renewals in 30 TTL", n, renewals)
			require.LessOrEqual(t, renewals, 30*9/2+1, "%d leases", n)
			require.GreaterOrEqual(t, renewals, 80)
			newest := time.Time{}
			h.sent.mu.Lock()
			for i, w := range h.sent.sent {
				if w == "renew" {
					newest = h.sent.at[i]
				}
			}
			h.sent.mu.Unlock()
			for _, l := range all {
				require.LessOrEqual(t, time.Until(l.Deadline()), c.Options().TTL-c.Options().Margin, newest)
				require.NoError(t, l.Release(t.Context()))
			}
			require.NoError(t, c.Close(t.Context()))
		}
	})
}
