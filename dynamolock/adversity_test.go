package dynamolock_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/lease"
)

func newStoreOn(s *service, wrap func(http.RoundTripper) http.RoundTripper) (*dynamolock.Store, error) {
	return dynamolock.New(s.sdk(wrap), table, nil)
}

// gateway stands between a host and DynamoDB. When it is in the way it answers with status, a Date of its own (its clock is an
// hour ahead) and no sign of DynamoDB.
func gateway(status int, inTheWay func() bool) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !inTheWay() {
				return next.RoundTrip(r)
			}
			resp := answer(r, status, "<html>bad gateway</html>")
			resp.Header.Set("Content-Type", "text/html")
			resp.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			return resp, nil
		})
	}
}

// A gateway that answers one request must not make a living, renewed lease look dead.
func TestDateOfAGatewayIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		ca := s.host(t, nil).client(t, &lease.Options{TTL: 30 * time.Second})
		held, err := ca.TryAcquire(t.Context(), "x")
		require.NoError(t, err)

		var bad atomic.Bool
		b, err := newStoreOn(s, gateway(http.StatusBadGateway, func() bool { return bad.CompareAndSwap(true, false) }))
		require.NoError(t, err)
		cb, err := lease.New(b, &lease.Options{TTL: 30 * time.Second, Observer: lease.ObserverFunc(func(lease.Event) {})})
		require.NoError(t, err)
		_, err = cb.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, lease.ErrHeld)
		bad.Store(true) // one request
		stolen, err := cb.TryAcquire(t.Context(), "x")
		both := held.Err() == nil && err == nil && stolen.Err() == nil
		if err == nil {
			_ = stolen.Release(t.Context())
		}
		_ = ca.Close(t.Context())
		_ = cb.Close(t.Context())
		require.False(t, both, "two holders trust one lock at one instant")
		require.ErrorIs(t, err, lease.ErrHeld)
	})
}

// The same through a waiter, which is what Client.Acquire does.
func TestDateOfAGatewayIsNotBelievedByAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		ca := s.host(t, nil).client(t, &lease.Options{TTL: 30 * time.Second})
		held, err := ca.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		var n atomic.Int32
		b, err := newStoreOn(s, gateway(http.StatusServiceUnavailable, func() bool { return n.Add(1) == 5 })) // one of the waiter's reads
		require.NoError(t, err)
		cb, err := lease.New(b, &lease.Options{TTL: 30 * time.Second, Observer: lease.ObserverFunc(func(lease.Event) {})})
		require.NoError(t, err)
		done := make(chan bool, 1)
		go func() {
			l, err := cb.Acquire(t.Context(), "x")
			done <- err == nil && l.Err() == nil && held.Err() == nil
		}()
		var both bool
		select {
		case both = <-done:
		case <-time.After(20 * time.Second):
		}
		_ = held.Release(t.Context())
		if !both {
			<-done
		}
		_ = ca.Close(t.Context())
		_ = cb.Close(t.Context())
		require.False(t, both, "two holders trust one lock at one instant")
	})
}

// The same before a free lock is taken: neither the token nor the end runs an hour ahead.
func TestDateOfAGatewayDoesNotMoveTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		require.NoError(t, s.host(t, nil).Release(t.Context(), crash(t, s, "x", 3*time.Second), lease.Final{}))
		var bad atomic.Bool
		b, err := newStoreOn(s, gateway(http.StatusBadGateway, func() bool { return bad.CompareAndSwap(true, false) }))
		require.NoError(t, err)
		_, err = b.Inspect(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		bad.Store(true)
		_, err = b.Inspect(t.Context(), "x")
		require.ErrorIs(t, err, lease.ErrUnavailable)
		g, err := b.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.LessOrEqual(t, int64(g.Token), time.Now().UnixMilli())
		require.LessOrEqual(t, g.Expires, time.Now().Add(g.TTL))
	})
}

// One of a waiter's reads is swallowed (a NAT forgot the connection). When the lock is free and the
// network well, Acquire returns: every read is bounded.
func TestSwallowedReadDoesNotStopAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		ca := s.host(t, nil).client(t, &lease.Options{TTL: 6 * time.Second})
		held, err := ca.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		var reads atomic.Int32
		b, err := newStoreOn(s, func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "GetItem") && reads.Add(1) == 3 {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return next.RoundTrip(r)
			})
		})
		require.NoError(t, err)
		cb, err := lease.New(b, &lease.Options{TTL: 6 * time.Second, Observer: lease.ObserverFunc(func(lease.Event) {})})
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			_, err := cb.Acquire(t.Context(), "x")
			got <- err
		}()
		time.Sleep(5 * time.Second)
		require.NoError(t, held.Release(t.Context()))
		select {
		case err := <-got:
			require.NoError(t, err)
			require.NoError(t, cb.Close(t.Context()))
			require.NoError(t, ca.Close(t.Context()))
		case <-time.After(24 * time.Hour):
			t.Fatal("the lock has been free for a day, and Acquire still hangs in one read")
		}
	})
}

// A waiter of a client that is closed returns, and polls no more.
func TestCloseEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		ca := s.host(t, nil).client(t, &lease.Options{TTL: 6 * time.Second})
		held, err := ca.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		b := s.host(t, nil)
		cb := b.client(t, &lease.Options{TTL: 6 * time.Second})
		got := make(chan error, 1)
		go func() {
			_, err := cb.Acquire(t.Context(), "x")
			got <- err
		}()
		time.Sleep(5 * time.Second)
		require.NoError(t, cb.Close(t.Context()))
		b.sent.take()
		time.Sleep(10 * time.Minute)
		after := b.sent.take()
		returned := len(got) > 0
		_ = held.Release(t.Context())
		err = <-got
		_ = ca.Close(t.Context())
		t.Logf("after Close: returned %v, %d requests, at last: %v", returned, len(after), err)
		require.True(t, returned, "Acquire still waits ten minutes after Close")
		require.Empty(t, after, "requests after Close")
	})
}

// The first try of a release never arrives; before the second an operator breaks the lock. The second is refused:
// neither the marks nor the value are stored, and ReleaseWith says that this is in doubt.
func TestBreakDuringAReleaseInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		op := s.host(t, nil)
		var drop atomic.Bool
		a, err := newStoreOn(s, func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "UpdateItem") && drop.CompareAndSwap(true, false) {
					return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
				}
				return next.RoundTrip(r)
			})
		})
		require.NoError(t, err)
		ca, err := lease.New(a, &lease.Options{TTL: 30 * time.Second, Observer: lease.ObserverFunc(func(lease.Event) {})})
		require.NoError(t, err)
		occ := time.Now().Unix()
		l, err := ca.TryAcquireMark(t.Context(), "x", lease.Mark{Occurrence: occ})
		require.NoError(t, err)
		drop.Store(true)
		go func() {
			time.Sleep(100 * time.Millisecond)
			if err := op.Break(t.Context(), "x", l.Token(), why); err != nil {
				t.Error(err)
			}
		}()
		err = l.ReleaseWith(t.Context(), lease.Final{Value: []byte("done"), Marks: &lease.Marks{Started: occ, Finished: occ}})
		info, inspectErr := op.Inspect(t.Context(), "x")
		require.NoError(t, inspectErr)
		require.NotNil(t, info.Broken)
		require.Zero(t, info.Marks.Finished, "nothing was stored")
		require.NoError(t, ca.Close(t.Context()))
		require.ErrorIs(t, err, lease.ErrInDoubt, "what was to be left behind is not stored")
	})
}

// saveGhost: Save("old") is under way while its caller gives up; Save("new") is stored; then the first arrives.
func saveGhost(t *testing.T, s *service, before time.Duration, between func(lease.Store)) string {
	t.Helper()
	var slow atomic.Bool
	landed := make(chan struct{})
	a, err := newStoreOn(s, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !slow.CompareAndSwap(true, false) {
				return next.RoundTrip(r)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			late := r.Clone(context.WithoutCancel(r.Context()))
			late.Body = io.NopCloser(strings.NewReader(string(body)))
			go func() {
				defer close(landed)
				time.Sleep(900 * time.Millisecond)
				if resp, err := next.RoundTrip(late); err == nil {
					_ = resp.Body.Close()
				}
			}()
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
	})
	require.NoError(t, err)
	ca, err := lease.New(a, &lease.Options{TTL: 30 * time.Second, Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(t, err)
	l, err := ca.TryAcquire(t.Context(), "x")
	require.NoError(t, err)
	time.Sleep(before)
	slow.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		synctest.Wait()
		cancel()
	}()
	require.ErrorIs(t, l.Save(ctx, []byte("old")), lease.ErrInDoubt)
	between(a)
	require.NoError(t, l.Save(t.Context(), []byte("new")))
	<-landed
	info, err := a.Inspect(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, ca.Close(t.Context()))
	return string(info.Value)
}

// Both saves fall into one millisecond.
func TestLateSaveOfTheSameMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, "new", saveGhost(t, newService(t), 0, func(lease.Store) {}))
	})
}

// With 100 ms between them, and an answer of a front end that is a second behind (within the assumption).
func TestLateSaveAcrossFrontEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		s.offset = time.Second
		require.Equal(t, "new", saveGhost(t, s, 600*time.Millisecond, func(a lease.Store) {
			time.Sleep(100 * time.Millisecond)
			s.offset = 0
			_, err := a.Inspect(t.Context(), "y") // any other request of this process: it learns the other front end's time
			require.NoError(t, err)
		}))
	})
}
