package consullock_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// txns does something with the transactions that pick chooses by their text.
type txns struct {
	pick func(body string) bool
	do   func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error)
}

// script is a wire whose behavior changes from step to step.
type script struct{ now atomic.Pointer[txns] }

func (s *script) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		send := func() (*http.Response, error) { return next.RoundTrip(r) }
		t := s.now.Load()
		if t == nil || !strings.HasSuffix(r.URL.Path, "/txn") {
			return send()
		}
		if body := bodyOf(r); t.pick == nil || t.pick(body) {
			return t.do(r, send)
		}
		return send()
	})
}

func bodyOf(r *http.Request) string {
	body, err := r.GetBody()
	if err != nil {
		return ""
	}
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return b.String()
		}
	}
}

// unanswered lets the request be done and its caller wait in vain.
func unanswered(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
	if resp, err := send(); err == nil {
		_ = resp.Body.Close()
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func short(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func locks(body string) bool   { return strings.Contains(body, `"lock"`) }
func unlocks(body string) bool { return strings.Contains(body, `"unlock"`) }

func attemptOf(id string) lease.Request {
	r := request("x")
	r.Attempt = id
	return r
}

// TestManyDoubts: of more attempts without an answer than a session remembers, it forgets the oldest, whose requests are the least
// likely to be still on their way.
func TestManyDoubts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		var wire script
		late := &lateTxn{by: time.Second}
		sent := &counter{}
		st := newStore(t, s.config(func(next http.RoundTripper) http.RoundTripper { return sent.wrap(wire.wrap(late.wrap(next))) }), consullock.Options{})
		b := newStore(t, s.config(nil), consullock.Options{})
		long := func(name string) lease.Request {
			r := request(name)
			r.TTL = time.Minute
			return r
		}
		other, err := st.TryAcquire(t.Context(), long("other"))
		require.NoError(t, err)
		wire.now.Store(&txns{pick: locks, do: func(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
			return nil, fmt.Errorf("connection reset")
		}})
		giveUp := func(name string) {
			r := long(name)
			_, err := st.TryAcquire(short(t), r)
			requireClass(t, err, lease.ErrInDoubt)
			require.ErrorIs(t, st.Release(t.Context(), lease.Grant{Request: r}, lease.Final{}), lease.ErrLost)
		}
		for i := range 300 {
			giveUp(fmt.Sprint("name-", i))
		}
		wire.now.Store(nil)
		late.next()
		giveUp("x")
		late.wait()
		require.NotEmpty(t, s.Get(lockOfX).Session, "the late request has the lock")
		other, err = st.Renew(t.Context(), other)
		require.NoError(t, err)
		g, err := b.TryAcquire(t.Context(), attemptOf("of another client"))
		require.NoError(t, err)
		require.NoError(t, b.Release(t.Context(), g, lease.Final{}))
		for range 70 { // more than an hour, after which no request is under way
			time.Sleep(55 * time.Second)
			other, err = st.Renew(t.Context(), other)
			require.NoError(t, err)
		}
		sent.take()
		_, err = st.Renew(t.Context(), other)
		require.NoError(t, err)
		require.Len(t, strings.Fields(sent.take()), 2, "the rounds look at what is held alone")
		require.NoError(t, st.Release(t.Context(), other, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestRefusedTokenStartsNothing: an occurrence whose acquire fails closed was not started.
func TestRefusedTokenStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newService(consulfake.Options{})
		old.SetIndex(1_000_000)
		st := newStore(t, old.config(nil), consullock.Options{})
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{Value: []byte("kept")}))
		s := newService(consulfake.Options{})
		for _, key := range old.Keys("cloudlease/") {
			s.Put(key, old.Get(key).Value)
		}
		next := newStore(t, s.config(nil), consullock.Options{})
		r := request("x")
		r.Mark = &lease.Mark{Occurrence: time.Now().Unix(), AtMostOnce: true}
		for _, r.Attempt = range []string{"first", "second"} {
			_, err = next.TryAcquire(t.Context(), r)
			requireClass(t, err, lease.ErrMisconfigured)
		}
		require.NoError(t, next.RaiseFloor(t.Context(), "x", g.Token))
		r.Attempt = "after the floor was raised"
		again, err := next.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, "kept", string(again.Value))
		require.Zero(t, again.Marks.Finished)
		require.NoError(t, next.Release(t.Context(), again, lease.Final{}))
		require.NoError(t, next.Close(t.Context()))
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestRenewalAnsweredFromThePast: a server that leads again and has not caught up does not know a session that lives.
func TestRenewalAnsweredFromThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		var behind atomic.Bool
		past := func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if behind.Load() && strings.HasPrefix(r.URL.Path, "/v1/session/renew/") {
					return answer(r, http.StatusNotFound, "Session id '00000000-0000-4000-8000-000000000000' not found"), nil
				}
				return next.RoundTrip(r)
			})
		}
		st := newStore(t, s.config(past), consullock.Options{})
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		behind.Store(true)
		_, err = st.Renew(t.Context(), g)
		require.NotErrorIs(t, err, lease.ErrLost)
		requireClass(t, err, lease.ErrUnavailable)
		behind.Store(false)
		g, err = st.Renew(t.Context(), g)
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestReadsThatDecide are consistent ones: those of keys in a round, of records, and of what is kept.
func TestReadsThatDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		sent := &counter{}
		st := newStore(t, s.config(sent.wrap), consullock.Options{})
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		sent.take()
		_, err = st.Renew(t.Context(), g)
		require.NoError(t, err)
		_, err = st.Inspect(t.Context(), "x")
		require.NoError(t, err)
		_, err = st.Load(t.Context(), "record")
		require.NoError(t, err)
		reads := 0
		for _, r := range sent.all {
			if strings.HasSuffix(r.URL.Path, "/txn") || r.Method == http.MethodGet {
				reads++
				require.True(t, r.URL.Query().Has("consistent"), "%s", r.URL)
			}
		}
		require.Equal(t, 3, reads)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestReleaseOfAnOverwrittenGrant: a lock request that arrived a second time has written over the next grant. Its release finds
// that, and the key is not forgotten: the session, which lives on, would keep it.
func TestReleaseOfAnOverwrittenGrant(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		p := &replays{}
		st, b := w.store(t, consullock.Options{}, p.wrap), w.store(t, consullock.Options{}, nil)
		other, err := st.TryAcquire(t.Context(), request("other"))
		require.NoError(t, err)
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		lock := len(p.kept) - 1
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		g, err = st.TryAcquire(t.Context(), attemptOf("next"))
		require.NoError(t, err)
		p.replay(t, lock)
		require.ErrorIs(t, st.Release(t.Context(), g, lease.Final{}), lease.ErrLost)
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

// TestGrantOfADeadSession: the end of the session is seen while the answer of a lock is under way. Its holder is told at its first
// renewal.
func TestGrantOfADeadSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		var wire script
		st := newStore(t, s.config(wire.wrap), consullock.Options{})
		other, err := st.TryAcquire(t.Context(), request("other"))
		require.NoError(t, err)
		wire.now.Store(&txns{pick: locks, do: func(_ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			resp, err := send()
			s.DestroySession(s.Sessions()[0].ID)
			time.Sleep(time.Second)
			return resp, err
		}})
		got := make(chan lease.Grant)
		go func() {
			g, err := st.TryAcquire(t.Context(), request("x"))
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			got <- g
		}()
		synctest.Wait()
		_, err = st.Renew(t.Context(), other)
		requireClass(t, err, lease.ErrLost)
		_, err = st.Renew(t.Context(), <-got)
		requireClass(t, err, lease.ErrLost)
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestCredentialsInTheAddress would be shown by the errors of connections that fail.
func TestCredentialsInTheAddress(t *testing.T) {
	_, err := consullock.New(&api.Config{Address: "http://user:hunter2@127.0.0.1:1"}, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "HttpAuth")
	require.NotContains(t, err.Error(), "hunter2")
}

// TestCloseWhileASessionIsMade is bounded as well.
func TestCloseWhileASessionIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		var cut hole
		st := newStore(t, s.config(cut.wrap), consullock.Options{})
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		cut.set(all)
		r := request("y")
		r.TTL = 2 * ttl
		_, err = st.TryAcquire(short(t), r)
		requireClass(t, err, lease.ErrUnavailable)
		began := time.Now()
		require.Error(t, st.Close(context.Background()))
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
		time.Sleep(ttl)
	})
}
