package consullock_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// TestRetryAfterARefusal: the first try of an attempt lands without an answer, the second is turned away, and the third finds the
// key locked as it would lock it, so that its index stays. A round that thought the key given up must not unlock it then.
func TestRetryAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		var wire script
		st, b := newStore(t, s.config(wire.wrap), consullock.Options{}), newStore(t, s.config(nil), consullock.Options{})
		other, err := st.TryAcquire(t.Context(), request("other"))
		require.NoError(t, err)
		r := request("x")
		wire.now.Store(&txns{pick: locks, do: unanswered})
		_, err = st.TryAcquire(short(t), r)
		requireClass(t, err, lease.ErrInDoubt)
		wire.now.Store(&txns{pick: locks, do: func(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
			return answer(r, http.StatusTooManyRequests, "Too many requests"), nil
		}})
		_, err = st.TryAcquire(t.Context(), r)
		requireClass(t, err, lease.ErrUnavailable)
		wire.now.Store(&txns{pick: unlocks, do: func(_ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			time.Sleep(time.Second)
			return send()
		}})
		renewed := make(chan error)
		go func() {
			_, err := st.Renew(t.Context(), other)
			renewed <- err
		}()
		time.Sleep(500 * time.Millisecond)
		g, err := st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		require.NoError(t, <-renewed)
		require.Less(t, lease.SystemClock().Fast(g.Sent), ttl/2, "it is trusted")
		_, err = b.TryAcquire(t.Context(), attemptOf("of another client"))
		require.ErrorIs(t, err, lease.ErrHeld, "the round has freed it")
		wire.now.Store(nil)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Release(t.Context(), other, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestRetryOfABrokenGrant: an operator has broken what the first try was granted. The second is a grant of its own, and not the
// one whose token is over.
func TestRetryOfABrokenGrant(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		var wire script
		st := w.store(t, consullock.Options{}, wire.wrap)
		wire.now.Store(&txns{pick: locks, do: unanswered})
		_, err := st.TryAcquire(short(t), request("x"))
		requireClass(t, err, lease.ErrInDoubt)
		wire.now.Store(nil)
		info, err := st.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, st.Break(t.Context(), "x", info.Token, lease.Reason{By: "operator"}))
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.Greater(t, g.Token, info.Token)
		_, err = st.Renew(t.Context(), g)
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestRetryOfALostGrant: a round sees that the first try's key was taken away while the second is under way. What the second is
// given is not swept as if it were lost.
func TestRetryOfALostGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		var wire script
		st, b := newStore(t, s.config(wire.wrap), consullock.Options{}), newStore(t, s.config(nil), consullock.Options{})
		other, err := st.TryAcquire(t.Context(), request("other"))
		require.NoError(t, err)
		first, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.NoError(t, st.Break(t.Context(), "x", first.Token, lease.Reason{By: "operator"}))
		wire.now.Store(&txns{pick: locks, do: func(_ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			time.Sleep(500 * time.Millisecond)
			return send()
		}})
		type outcome struct {
			g   lease.Grant
			err error
		}
		got := make(chan outcome)
		go func() {
			g, err := st.TryAcquire(t.Context(), request("x"))
			got <- outcome{g, err}
		}()
		synctest.Wait()
		_, err = st.Renew(t.Context(), other) // it sees that the first is lost
		require.NoError(t, err)
		again := <-got
		require.NoError(t, again.err)
		require.Greater(t, again.g.Token, first.Token)
		wire.now.Store(nil)
		_, err = st.Renew(t.Context(), other)
		require.NoError(t, err)
		_, err = b.TryAcquire(t.Context(), attemptOf("of another client"))
		require.ErrorIs(t, err, lease.ErrHeld)
		g, err := st.Renew(t.Context(), again.g)
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Release(t.Context(), other, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestRetryOfARelease: the first try of a release that leaves a value behind does not arrive. The next round of the session does
// not free the lock without the value before the second try, and where one has, the second leaves it all the same.
func TestRetryOfARelease(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(consulfake.Options{})
			var wire script
			st, b := newStore(t, s.config(wire.wrap), consullock.Options{}), newStore(t, s.config(nil), consullock.Options{})
			other, err := st.TryAcquire(t.Context(), request("other"))
			require.NoError(t, err)
			g, err := st.TryAcquire(t.Context(), request("x"))
			require.NoError(t, err)
			f := lease.Final{Value: []byte("left"), Marks: &lease.Marks{Started: 7, Finished: 7}}
			wire.now.Store(&txns{pick: unlocks, do: func(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}})
			requireClass(t, st.Release(short(t), g, f), lease.ErrInDoubt)
			wire.now.Store(nil)
			if late {
				time.Sleep(ttl / 2)
				_, err = st.Renew(t.Context(), other)
				require.NoError(t, err)
				time.Sleep(ttl / 2)
			}
			_, err = st.Renew(t.Context(), other)
			require.NoError(t, err)
			if late {
				require.Empty(t, s.Get(lockOfX).Session, "it is freed in the end")
			} else {
				_, err = b.TryAcquire(t.Context(), attemptOf("of another client"))
				require.ErrorIs(t, err, lease.ErrHeld)
			}
			require.NoError(t, st.Release(t.Context(), g, f))
			info, err := st.Inspect(t.Context(), "x")
			require.NoError(t, err)
			require.Equal(t, lease.Free, info.State)
			require.Equal(t, "left", string(info.Value))
			require.EqualValues(t, 7, info.Marks.Finished)
			require.NoError(t, st.Release(t.Context(), other, lease.Final{}))
			require.NoError(t, st.Close(t.Context()))
			require.NoError(t, b.Close(t.Context()))
		})
	}
}

// TestCloseEndsASessionInTheMaking: nothing goes on after Close, also if its caller has less patience than a creation.
func TestCloseEndsASessionInTheMaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		var swallowing hole
		swallowing.set(all)
		var open atomic.Int32
		st := newStore(t, s.config(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				open.Add(1)
				defer open.Add(-1)
				return swallowing.wrap(next).RoundTrip(r)
			})
		}), consullock.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := st.TryAcquire(ctx, request("x"))
		require.ErrorIs(t, err, lease.ErrUnavailable)
		synctest.Wait()
		require.EqualValues(t, 1, open.Load(), "the session is still in the making")
		closing, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, st.Close(closing))
		require.Zero(t, open.Load(), "its request goes on after Close")
	})
}

// TestLossIsToldThoughTheSessionHangs: a lost lease is told, and nothing of its watch goes on, although the renewal that looks
// after the other leases of the session is swallowed.
func TestLossIsToldThoughTheSessionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		var swallowing hole
		c := clientOf(t, newStore(t, s.config(swallowing.wrap), consullock.Options{}), nil)
		x, y := acquire(t, c, "x"), acquire(t, c, "y")
		time.Sleep(ttl/3 + ttl/20) // watched, and just renewed
		swallowing.set(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/session/renew/") })
		require.True(t, s.Delete("cloudlease/locks/x/", true))
		require.LessOrEqual(t, awaitLoss(t, x, ttl/3), ttl/4)
		swallowing.set(nil)
		time.Sleep(2 * ttl)
		require.NoError(t, y.Err())
		require.NoError(t, y.Release(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}
