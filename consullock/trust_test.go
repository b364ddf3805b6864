package consullock_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// TestWatchOfALostGrant: who asks for a lease that a round has seen overwritten knows of it from then on, and its key is freed.
func TestWatchOfALostGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		st, b := newStore(t, s.config(nil), consullock.Options{}), newStore(t, s.config(nil), consullock.Options{})
		other, err := st.TryAcquire(t.Context(), request("other"))
		require.NoError(t, err)
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		s.Put(lockOfX, []byte("by hand"))
		_, err = st.Renew(t.Context(), other) // it sees that
		require.NoError(t, err)
		_, err = st.Renew(t.Context(), other)
		require.NoError(t, err)
		_, err = b.TryAcquire(t.Context(), attemptOf("of another client"))
		require.ErrorIs(t, err, lease.ErrHeld, "its holder does not know yet")
		err = st.Watch(t.Context(), g)
		requireClass(t, err, lease.ErrLost)
		require.NotContains(t, err.Error(), "the session has ended")
		_, err = st.Renew(t.Context(), other)
		require.NoError(t, err)
		g, err = b.TryAcquire(t.Context(), attemptOf("of another client"))
		require.NoError(t, err)
		require.NoError(t, b.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Release(t.Context(), other, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestWallClockStepsInARound: a renewal that began while the wall clock was behind promises less than the grant before it. The
// holder goes on by the better promise, and so must the store before it thinks that nobody trusts the lock.
func TestWallClockStepsInARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		var behind atomic.Int64
		clock := func() lease.Reading {
			now := lease.SystemClock()
			now.Wall = now.Wall.Add(-time.Duration(behind.Load()))
			return now
		}
		var wire script
		st, b := newStore(t, s.config(wire.wrap), consullock.Options{Clock: clock}), newStore(t, s.config(nil), consullock.Options{})
		other, err := st.TryAcquire(t.Context(), request("other"))
		require.NoError(t, err)
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		behind.Store(int64(3 * time.Second))
		wire.now.Store(&txns{do: func(_ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			behind.Store(0)
			return send()
		}})
		renewed, err := st.Renew(t.Context(), g)
		require.NoError(t, err)
		wire.now.Store(nil)
		require.Greater(t, clock().Fast(renewed.Sent), clock().Fast(g.Sent))
		time.Sleep(4 * time.Second)
		require.Less(t, clock().Fast(g.Sent), ttl, "it is trusted")
		_, err = st.Renew(t.Context(), other)
		require.NoError(t, err)
		_, err = b.TryAcquire(t.Context(), attemptOf("of another client"))
		require.ErrorIs(t, err, lease.ErrHeld)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Release(t.Context(), other, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
		require.NoError(t, b.Close(t.Context()))
	})
}
