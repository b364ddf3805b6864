package consullock_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// TestC3_LateLockIsSwept: a lock request lands after its caller has given up. The session lives on for another lease, and would
// keep the lock for ever.
func TestC3_LateLockIsSwept(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		late := &lateTxn{by: 3 * time.Second}
		c := w.client(t, lease.Options{}, late.wrap)
		b := w.client(t, lease.Options{}, nil)
		other := acquire(t, c, "other")
		late.next()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := c.TryAcquire(ctx, "x")
		cancel()
		require.ErrorIs(t, err, lease.ErrInDoubt)
		late.wait()
		landed := time.Now()
		info, err := b.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, lease.Held, info.State, "the late request has the lock")
		ctx, cancel = context.WithTimeout(t.Context(), 3*ttl)
		defer cancel()
		next, err := b.Acquire(ctx, "x")
		require.NoError(t, err)
		require.Less(t, time.Since(landed), ttl/2+2*time.Second, "at the next renewal of the other lease")
		require.NoError(t, other.Err())
		require.NoError(t, next.Release(t.Context()))
		require.NoError(t, other.Release(t.Context()))
	})
}

// lateTxn holds one transaction up, also when its caller has gone.
type lateTxn struct {
	by    time.Duration
	mu    sync.Mutex
	armed bool
	flown sync.WaitGroup
}

func (l *lateTxn) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = true
}

func (l *lateTxn) wait() { l.flown.Wait() }

func (l *lateTxn) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		l.mu.Lock()
		late := l.armed && strings.HasSuffix(r.URL.Path, "/txn")
		l.armed = l.armed && !late
		l.mu.Unlock()
		if !late {
			return next.RoundTrip(r)
		}
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		copied := r.Clone(context.WithoutCancel(r.Context()))
		copied.Body = body
		l.flown.Go(func() {
			time.Sleep(l.by)
			if resp, err := next.RoundTrip(copied); err == nil {
				_ = resp.Body.Close()
			}
		})
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
}

// TestC3_LostHereAndNotThere: a lease whose holder has stopped renewing it is freed there as well, although the session lives on.
func TestC3_LostHereAndNotThere(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.client(t, lease.Options{}, nil)
		b := w.client(t, lease.Options{}, nil)
		other := acquire(t, c, "other")
		capped, err := c.With(lease.Options{TTL: ttl, MaxHold: ttl})
		require.NoError(t, err)
		l := acquire(t, capped, "x")
		began := time.Now()
		<-l.Done()
		ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
		defer cancel()
		next, err := b.Acquire(ctx, "x")
		require.NoError(t, err)
		require.Less(t, time.Since(began), 3*ttl)
		require.NoError(t, other.Err())
		require.NoError(t, next.Release(t.Context()))
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestHalfBrokenConnections: keys cannot be read while sessions are renewed, and the other way round. Both end in a loss here that
// is one there.
func TestHalfBrokenConnections(t *testing.T) {
	for name, part := range map[string]string{"keys": "/v1/txn", "sessions": "/v1/session/renew"} {
		for _, failing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, failing: %v", name, failing), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newService(consulfake.Options{})
					var cut hole
					var mu sync.Mutex
					broken := false
					wrap := cut.wrap
					if failing {
						wrap = func(next http.RoundTripper) http.RoundTripper {
							return roundTripper(func(r *http.Request) (*http.Response, error) {
								mu.Lock()
								refuse := broken
								mu.Unlock()
								if refuse && strings.HasPrefix(r.URL.Path, part) {
									return answer(r, http.StatusInternalServerError, "rpc error"), nil
								}
								return next.RoundTrip(r)
							})
						}
					}
					set := func(on bool) {
						mu.Lock()
						broken = on
						mu.Unlock()
						cut.set(func(r *http.Request) bool { return on && strings.HasPrefix(r.URL.Path, part) })
					}
					c := clientOf(t, newStore(t, s.config(wrap), consullock.Options{}), nil)
					b := s.host(t, consullock.Options{}).client(t, nil)
					l := acquire(t, c, "x")
					time.Sleep(ttl)
					require.NoError(t, l.Err())
					set(true)
					took := awaitLoss(t, l, 2*ttl)
					require.LessOrEqual(t, took, c.Options().TTL-c.Options().Margin)
					next, err := b.Acquire(t.Context(), "x")
					require.NoError(t, err)
					require.Greater(t, next.Token(), l.Token())
					require.NoError(t, next.Release(t.Context()))
					set(false)
					again := acquire(t, c, "x")
					require.Greater(t, again.Token(), next.Token())
					time.Sleep(2 * ttl)
					require.NoError(t, again.Err())
					require.NoError(t, again.Release(t.Context()))
					require.NoError(t, c.Close(t.Context()))
					require.NoError(t, b.Close(t.Context()))
				})
			})
		}
	}
}

// TestLateSave: of two saves whose first was not answered, the second stays, also when the first lands after it.
func TestLateSave(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		late := &lateTxn{by: 2 * time.Second}
		st := w.store(t, consullock.Options{}, late.wrap)
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		late.next()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err = st.Save(ctx, g, []byte("first"))
		cancel()
		require.ErrorIs(t, err, lease.ErrInDoubt)
		g, err = st.Save(t.Context(), g, []byte("second"))
		require.NoError(t, err)
		late.wait()
		info, err := st.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "second", string(info.Value))
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestCloseFreesFirst: what a session holds without a lease is freed before it is destroyed, so that no lock-delay follows.
func TestCloseFreesFirst(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		late := &lateTxn{by: time.Second}
		st := w.store(t, consullock.Options{}, late.wrap)
		b := w.client(t, lease.Options{}, nil)
		g, err := st.TryAcquire(t.Context(), request("warm"))
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		late.next()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		r := request("x")
		_, err = st.TryAcquire(ctx, r)
		cancel()
		require.ErrorIs(t, err, lease.ErrInDoubt)
		require.ErrorIs(t, st.Release(t.Context(), lease.Grant{Request: r}, lease.Final{}), lease.ErrLost)
		late.wait()
		require.NoError(t, st.Close(t.Context()))
		require.NoError(t, acquire(t, b, "x").Release(t.Context()))
	})
}

// TestGrantOfAnOldSession is trusted from the session's last renewal, not from the lock.
func TestGrantOfAnOldSession(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		st := w.store(t, consullock.Options{}, nil)
		g, err := st.TryAcquire(t.Context(), request("warm"))
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		time.Sleep(ttl * 2 / 5)
		next, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.LessOrEqual(t, next.Sent.Mono, g.Sent.Mono+time.Second)
		time.Sleep(ttl / 2)
		third, err := st.TryAcquire(t.Context(), request("y"))
		require.NoError(t, err)
		require.Less(t, lease.SystemClock().Fast(third.Sent), time.Second, "it was renewed, because it was old")
		require.NoError(t, st.Release(t.Context(), next, lease.Final{}))
		require.NoError(t, st.Release(t.Context(), third, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestLateLockUnderAnotherLease: a lock request of an attempt that was given up lands when the same client has the lock again, and
// writes over it. Neither the give-back of that attempt nor the next round frees the key before the holder knows.
func TestLateLockUnderAnotherLease(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		late := &lateTxn{by: time.Second}
		st, b := w.store(t, consullock.Options{}, late.wrap), w.store(t, consullock.Options{}, nil)
		other, err := st.TryAcquire(t.Context(), request("other"))
		require.NoError(t, err)
		late.next()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		r := request("x")
		_, err = st.TryAcquire(ctx, r)
		cancel()
		require.ErrorIs(t, err, lease.ErrInDoubt)
		mine := request("x")
		mine.Attempt = "the next of the same client"
		g, err := st.TryAcquire(t.Context(), mine)
		require.NoError(t, err)
		late.wait()
		theirs := request("x")
		theirs.Attempt, theirs.Holder = "of another client", "b"
		require.ErrorIs(t, st.Release(t.Context(), lease.Grant{Request: r}, lease.Final{}), lease.ErrLost)
		_, err = b.TryAcquire(t.Context(), theirs)
		require.ErrorIs(t, err, lease.ErrHeld, "the give-back has freed the lock of the next lease")
		_, err = st.Renew(t.Context(), other) // this round sees it, and does not free it
		require.NoError(t, err)
		_, err = st.Renew(t.Context(), other)
		require.NoError(t, err)
		_, err = b.TryAcquire(t.Context(), theirs)
		require.ErrorIs(t, err, lease.ErrHeld, "its holder does not know yet")
		_, err = st.Renew(t.Context(), g)
		require.ErrorIs(t, err, lease.ErrLost)
		_, err = st.Renew(t.Context(), other)
		require.NoError(t, err)
		next, err := b.TryAcquire(t.Context(), theirs)
		require.NoError(t, err, "now it does")
		require.NoError(t, b.Release(t.Context(), next, lease.Final{}))
		require.NoError(t, st.Release(t.Context(), other, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestRetryIsTrustedAnew: the store does not take a lease for over whose retry was given a later trust than its first try.
func TestRetryIsTrustedAnew(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		st, b := w.store(t, consullock.Options{}, nil), w.store(t, consullock.Options{}, nil)
		r := request("x")
		_, err := st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		other := request("other")
		time.Sleep(ttl / 2)
		o, err := st.TryAcquire(t.Context(), other)
		require.NoError(t, err)
		o, err = st.Renew(t.Context(), o)
		require.NoError(t, err)
		r.Since = lease.SystemClock()
		g, err := st.TryAcquire(t.Context(), r) // the same attempt: trusted from the session's renewal
		require.NoError(t, err)
		require.Less(t, lease.SystemClock().Fast(g.Sent), ttl/4)
		time.Sleep(ttl * 3 / 5)
		_, err = st.Renew(t.Context(), o) // of another lease: it must not free this one
		require.NoError(t, err)
		theirs := request("x")
		theirs.Attempt = "of another client"
		_, err = b.TryAcquire(t.Context(), theirs)
		require.ErrorIs(t, err, lease.ErrHeld)
		_, err = st.Renew(t.Context(), g)
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Release(t.Context(), o, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
		require.NoError(t, b.Close(t.Context()))
	})
}
