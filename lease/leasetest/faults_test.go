package leasetest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
	"github.com/cloudlease/cloudlease/memlease"
)

// effect counts what reaches the service.
type effect struct{ n atomic.Int32 }

func (x *effect) do() error {
	x.n.Add(1)
	return nil
}

func TestFaultsByKind(t *testing.T) {
	for kind, c := range map[leasetest.Kind]struct {
		atReturn, later int // effects
		took            time.Duration
		err             error
	}{
		leasetest.DropRequest: {0, 0, 0, syscall.ECONNRESET},
		leasetest.DropAnswer:  {1, 1, 0, syscall.ECONNRESET},
		leasetest.DelayBefore: {1, 1, time.Second, nil},
		leasetest.DelayAfter:  {1, 1, time.Second, nil},
		leasetest.Duplicate:   {1, 2, 0, nil},
		leasetest.Fail:        {0, 0, 0, lease.ErrUnavailable},
		leasetest.FailAfter:   {1, 1, 0, lease.ErrUnavailable},
		leasetest.BlackHole:   {0, 0, 5 * time.Second, context.DeadlineExceeded},
	} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, x, began := leasetest.NewFaults(), &effect{}, time.Now()
				f.Add(leasetest.Rule{Kind: kind, Op: "renew", Delay: time.Second, Failure: leasetest.Throttled})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				err := f.Intercept(ctx, "renew", x.do)
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.took, time.Since(began))
				require.EqualValues(t, c.atReturn, x.n.Load())
				f.Settle()
				require.EqualValues(t, c.later, x.n.Load())
				require.Equal(t, kind, f.Calls("renew")[0].Kind)
				f.CheckFired(t)
			})
		})
	}
	f := leasetest.NewFaults()
	f.Add(leasetest.Rule{Kind: "no such kind"})
	require.ErrorContains(t, f.Intercept(t.Context(), "renew", (&effect{}).do), "no kind of fault")
}

func TestRequestsArriveWithoutTheirCaller(t *testing.T) {
	for _, kind := range []leasetest.Kind{leasetest.DelayBefore, leasetest.DelayAfter} {
		synctest.Test(t, func(t *testing.T) {
			f, x := leasetest.NewFaults(), &effect{}
			f.Add(leasetest.Rule{Kind: kind, Delay: time.Minute})
			cause := errors.New("no more interest")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
			defer cancel()
			began := time.Now()
			require.ErrorIs(t, f.Intercept(ctx, "save", x.do), cause)
			require.Equal(t, time.Second, time.Since(began), "the caller returns when its context ends")
			f.Settle()
			require.EqualValues(t, 1, x.n.Load())
		})
	}
}

func TestFaultsByCondition(t *testing.T) {
	f := leasetest.NewFaults()
	x := &effect{}
	third := f.Add(leasetest.Rule{Kind: leasetest.DropAnswer, Op: "renew", Every: 3})
	fourth := f.Add(leasetest.Rule{Kind: leasetest.DropRequest, Op: "renew", Nth: 4})
	never := f.Add(leasetest.Rule{Kind: leasetest.BlackHole, Op: "acquire"})
	var kinds []leasetest.Kind
	for range 7 {
		_ = f.Intercept(t.Context(), "renew", x.do) // fails now and then, on purpose
		require.NoError(t, f.Intercept(t.Context(), "save", x.do))
	}
	for _, c := range f.Calls("renew") {
		kinds = append(kinds, c.Kind)
	}
	require.Equal(t, []leasetest.Kind{"", "", leasetest.DropAnswer, leasetest.DropRequest, "", leasetest.DropAnswer, ""}, kinds)
	require.Equal(t, []int{2, 1, 0}, []int{third.Fired(), fourth.Fired(), never.Fired()})
	require.Len(t, f.Calls(""), 14)
	v := &verdict{TB: t}
	f.CheckFired(v)
	require.Contains(t, v.all(), `the fault "black hole" on "acquire" never hit a request`)
	f.Remove(never)
	f.CheckFired(v)
	require.Empty(t, v.all())
	f.Heal()
	third.Stop()
	require.NoError(t, f.Intercept(t.Context(), "renew", x.do))
	require.NoError(t, f.Intercept(t.Context(), "renew", x.do))
	require.NoError(t, f.Intercept(t.Context(), "renew", x.do))
}

// echo is a service over HTTP that tells what it was sent.
type echo struct {
	mu  sync.Mutex
	got []string
}

func (s *echo) bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *echo) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, string(body))
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("echo " + string(body)))}, err
}

func TestRoundTripper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := leasetest.NewFaults(), &echo{}
		hc := &http.Client{Transport: f.RoundTripper(s, func(_ *http.Request, x leasetest.Failure) *http.Response {
			if x != leasetest.Denied {
				return nil
			}
			return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody}
		})}
		post := func(ctx context.Context, body string) (int, string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://service.invalid", strings.NewReader(body))
			require.NoError(t, err)
			resp, err := hc.Do(req)
			if err != nil {
				return 0, "", err
			}
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, string(text), resp.Body.Close()
		}
		status, text, err := post(t.Context(), "one")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "echo one", text)

		lost := f.Add(leasetest.Rule{Kind: leasetest.DropAnswer})
		_, _, err = post(t.Context(), "two")
		require.ErrorIs(t, err, syscall.ECONNRESET)
		lost.Stop()
		denied := f.Add(leasetest.Rule{Kind: leasetest.Fail, Failure: leasetest.Denied})
		status, _, err = post(t.Context(), "three")
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, status)
		denied.Stop()
		unknown := f.Add(leasetest.Rule{Kind: leasetest.Fail, Failure: leasetest.Internal})
		_, _, err = post(t.Context(), "four")
		require.ErrorContains(t, err, "the harness makes no answer")
		unknown.Stop()

		f.Add(leasetest.Rule{Kind: leasetest.DelayBefore, Delay: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err = post(ctx, "five")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []string{"one", "two"}, s.bodies())
		f.Settle()
		require.Equal(t, []string{"one", "two", "five"}, s.bodies(), "it is on the wire")
	})
}

func TestAnnotateTellsTheOperation(t *testing.T) {
	var ops []string
	s := memlease.NewService().Store(&memlease.Options{
		Intercept: func(ctx context.Context, op string, do func() error) error {
			require.Equal(t, op, leasetest.Op(ctx))
			ops = append(ops, op)
			return do()
		},
	})
	a := leasetest.Annotate(s)
	g, err := a.TryAcquire(t.Context(), lease.Request{Name: "x", Holder: "h", TTL: time.Minute, Attempt: "1"})
	require.NoError(t, err)
	g, err = a.Renew(t.Context(), g)
	require.NoError(t, err)
	g, err = a.Save(t.Context(), g, []byte("v"))
	require.NoError(t, err)
	_, err = a.Inspect(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, a.Release(t.Context(), g, lease.Final{}))
	lister, ok := a.(lease.Lister)
	require.True(t, ok)
	for _, err := range lister.List(t.Context(), "") {
		require.NoError(t, err)
	}
	records, ok := a.(lease.Records)
	require.True(t, ok)
	rec, err := records.Load(t.Context(), "r")
	require.NoError(t, err)
	_, err = records.Swap(t.Context(), rec, []byte("v"), 0)
	require.NoError(t, err)
	for _, err := range records.Scan(t.Context(), "") {
		require.NoError(t, err)
	}
	guard := leasetest.AnnotateGuard(s.Guard())
	require.NoError(t, guard.Put(t.Context(), "k", []byte("v"), 1, "h"))
	_, err = guard.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, []string{
		"acquire", "renew", "save", "inspect", "release", "list", "load", "swap", "list", "put", "get",
	}, ops)
	require.Equal(t, s.Limits(), a.Limits())
	require.NoError(t, a.Close(t.Context()))
	require.Empty(t, leasetest.Op(t.Context()))
}

// waiting is a store that wakes its waiters, and does nothing else beyond a lease.Store.
type waiting struct{ lease.Store }

func (waiting) Wait(ctx context.Context, _ *lease.HeldError) error {
	if op := leasetest.Op(ctx); op != "wait" {
		return errors.New("the operation is " + op)
	}
	return nil
}

func TestAnnotateAddsNoAbility(t *testing.T) {
	type minimal struct{ lease.Store }
	s := memlease.New()
	bare := leasetest.Annotate(minimal{s})
	_, waits := bare.(lease.Waiter)
	_, lists := bare.(lease.Lister)
	_, keeps := bare.(lease.Records)
	require.False(t, waits || lists || keeps)
	clocked, ok := bare.(lease.Clocked)
	require.True(t, ok)
	require.Nil(t, clocked.Clock(), "the system's clock is the client's choice")
	w, waits := leasetest.Annotate(waiting{s}).(lease.Waiter)
	require.True(t, waits)
	require.NoError(t, w.Wait(t.Context(), &lease.HeldError{Name: "x"}))
	unwrapped, ok := leasetest.Annotate(s).(interface{ Unwrap() lease.Store })
	require.True(t, ok)
	require.Same(t, s, unwrapped.Unwrap())
}
