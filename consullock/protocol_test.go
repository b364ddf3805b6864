package consullock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// TestSameSessionTwice: Consul would let a session in again; the store does not (C2).
func TestSameSessionTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		slow := &slowdown{}
		sent := &counter{}
		st := newStore(t, s.config(func(next http.RoundTripper) http.RoundTripper { return sent.wrap(slow.wrap(next)) }), consullock.Options{})
		c := clientOf(t, st, nil)
		slow.set(500 * time.Millisecond)
		first := make(chan *lease.Lease)
		go func() {
			l, err := c.TryAcquire(t.Context(), "x")
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			first <- l
		}()
		synctest.Wait()
		sent.take()
		_, err := c.TryAcquire(t.Context(), "x") // while it asks
		require.ErrorIs(t, err, lease.ErrHeld)
		require.Empty(t, sent.take())
		l := <-first
		slow.set(0)
		sent.take()
		_, err = c.TryAcquire(t.Context(), "x") // nobody watches yet: it is asked who has it, and not for the lock
		require.ErrorIs(t, err, lease.ErrHeld)
		require.Equal(t, "txn", sent.take())
		time.Sleep(1500 * time.Millisecond)
		sent.take()
		other, err := c.With(lease.Options{TTL: ttl, Holder: "other"}) // another client of the same store and session
		require.NoError(t, err)
		_, err = other.TryAcquire(t.Context(), "x")
		held, ok := errors.AsType[*lease.HeldError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, c.Holder(), held.Holder)
		require.Equal(t, l.Token(), held.Token)
		require.Empty(t, sent.take())
		require.NoError(t, l.Err())

		r := request("y")
		g, err := st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		again, err := st.TryAcquire(t.Context(), r)
		require.NoError(t, err, "the same attempt")
		require.Equal(t, g.Token, again.Token)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}

// replays keeps requests, to send them a second time.
type replays struct {
	mu   sync.Mutex
	kept []func() (*http.Response, error)
}

func (p *replays) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.GetBody != nil && strings.HasSuffix(r.URL.Path, "/txn") {
			body, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			copied := r.Clone(context.WithoutCancel(r.Context()))
			copied.Body = body
			p.mu.Lock()
			p.kept = append(p.kept, func() (*http.Response, error) { return next.RoundTrip(copied) })
			p.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

func (p *replays) replay(t *testing.T, i int) {
	t.Helper()
	resp, err := p.kept[i]()
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

// TestC1_LateUnlock of the session's former grant does not free its next one.
func TestC1_LateUnlock(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		p := &replays{}
		st := w.store(t, consullock.Options{}, p.wrap)
		r := request("x")
		g, err := st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		unlock := len(p.kept) - 1
		r.Attempt, r.Since = "next", lease.SystemClock()
		g, err = st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		g, err = st.Save(t.Context(), g, []byte("new"))
		require.NoError(t, err)
		p.replay(t, unlock)
		_, err = st.Renew(t.Context(), g)
		require.NoError(t, err)
		info, err := st.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, lease.Held, info.State)
		require.Equal(t, "new", string(info.Value))
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestC2_LateLock: a lock request that arrives again, when the session has another grant, ends that: two grants of one session
// never pass for one.
func TestC2_LateLock(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		p := &replays{}
		st := w.store(t, consullock.Options{}, p.wrap)
		r := request("x")
		g, err := st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		lock := len(p.kept) - 1
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		r.Attempt, r.Since = "next", lease.SystemClock()
		g, err = st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		p.replay(t, lock)
		_, err = st.Renew(t.Context(), g)
		require.ErrorIs(t, err, lease.ErrLost)
		r.Attempt, r.Since = "third", lease.SystemClock()
		next, err := st.TryAcquire(t.Context(), r)
		require.NoError(t, err, "at once on the same client")
		require.Greater(t, next.Token, g.Token)
		require.NoError(t, st.Release(t.Context(), next, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestC4_RenewedSessionProvesNoKey: only what a round has seen of the key extends the trust.
func TestC4_RenewedSessionProvesNoKey(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		st := w.store(t, consullock.Options{}, nil)
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		_, err = w.root.KV().Delete(w.key("x"), nil)
		require.NoError(t, err)
		_, err = st.Renew(t.Context(), g)
		require.ErrorIs(t, err, lease.ErrLost)
		require.ErrorContains(t, err, "its key is gone")

		r := request("y")
		g, err = st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		_, err = w.root.KV().Put(&api.KVPair{Key: w.key("y"), Value: []byte("by hand")}, nil)
		require.NoError(t, err)
		_, err = st.Renew(t.Context(), g)
		require.ErrorIs(t, err, lease.ErrLost, "somebody wrote over it")
		r.Attempt, r.Since = "next", lease.SystemClock()
		g, err = st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestC8_OlderAnswersAreNoLoss: a watch is answered from before the grant.
func TestC8_OlderAnswersAreNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		stale := func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodGet && r.URL.Path == "/v1/kv/"+lockOfX && !r.URL.Query().Has("index") {
					resp := answer(r, http.StatusOK, `[{"Key":"`+lockOfX+`","Value":null,"ModifyIndex":3,"CreateIndex":3}]`)
					resp.Header.Set("X-Consul-Index", "3")
					return resp, nil
				}
				return next.RoundTrip(r)
			})
		}
		c := clientOf(t, newStore(t, s.config(stale), consullock.Options{}), nil)
		l := acquire(t, c, "x")
		time.Sleep(5 * ttl)
		require.NoError(t, l.Err())
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestHundredGoroutines: one winner in each round, whose token is above all before, also after a deletion.
func TestHundredGoroutines(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		rounds := 20
		if !w.virtual {
			rounds = 5
		}
		stores := make([]*consullock.Store, 10)
		for i := range stores {
			stores[i] = w.store(t, consullock.Options{}, nil)
		}
		last := lease.Token(0)
		for round := range rounds {
			var mu sync.Mutex
			var wg sync.WaitGroup
			var won []lease.Grant
			var by *consullock.Store
			for i := range 100 {
				wg.Go(func() {
					r := request("x")
					r.Attempt = fmt.Sprintf("%d of round %d", i, round)
					g, err := stores[i%10].TryAcquire(context.Background(), r)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won, by = append(won, g), stores[i%10]
					} else if !errors.Is(err, lease.ErrHeld) {
						t.Errorf("acquire: %v", err)
					}
				})
			}
			wg.Wait()
			require.Len(t, won, 1)
			require.Greater(t, won[0].Token, last)
			last = won[0].Token
			if round%3 == 2 {
				_, err := w.root.KV().DeleteTree(w.prefix+"locks/x/", nil)
				require.NoError(t, err)
			}
			_ = by.Release(t.Context(), won[0], lease.Final{}) // lost where its key was deleted
		}
		for _, st := range stores {
			require.NoError(t, st.Close(t.Context()))
		}
	})
}
