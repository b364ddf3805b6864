package leasetest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

// slack is how late an event may come.
const slack = 250 * time.Millisecond

// slack is how late a timer may fire. In virtual time none does, but a clock that drifts reads late.
func (e *env) slack() time.Duration {
	if e.Virtual {
		return e.TTL / 1000
	}
	return slack
}

// acquire takes name, which must be free, through a client of the host.
func (h *host) acquire(c *lease.Client, name string) *lease.Lease {
	h.e.Helper()
	l, err := c.TryAcquire(h.e.Context(), name)
	require.NoError(h.e, err)
	h.e.history.Watch(l)
	return l
}

// await waits at most d for ch to be closed.
func (e *env) await(ch <-chan struct{}, d time.Duration, what string) {
	e.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ch:
	case <-timer.C:
		require.FailNow(e, what+" did not come in time", "after %v", d)
	}
}

// requireLostInTime waits for the loss of l, which must come before the service can give the lock away: one TTL after
// the last good request was sent, less the margin.
func (h *host) requireLostInTime(c *lease.Client, l *lease.Lease) {
	e := h.e
	e.Helper()
	ctx, cancel := l.Context(e.Context())
	defer cancel()
	e.await(l.Done(), 2*e.TTL, "the loss")
	late := time.Since(h.lastGood(l.Name())) - (c.Options().TTL - c.Options().Margin)
	require.LessOrEqual(e, late, e.slack(), "the loss came late")
	e.await(ctx.Done(), slack, "the end of the lease's context")
	require.ErrorIs(e, context.Cause(ctx), lease.ErrLost)
	require.ErrorIs(e, l.Err(), lease.ErrLost)
	require.NotErrorIs(e, l.Err(), lease.ErrReleased)
	e.eventually(slack, func() bool { return len(h.seen(lease.Lost)) == 1 }, "the loss was not told to the observer once")
}

// requireStaysLost waits for d and wants l to stay lost and to send nothing.
func (h *host) requireStaysLost(l *lease.Lease, d time.Duration) {
	h.e.Helper()
	sent := len(h.faults.Calls("renew"))
	time.Sleep(d)
	require.ErrorIs(h.e, l.Err(), lease.ErrLost, "a lost lease came back to life")
	require.Len(h.e, h.faults.Calls("renew"), sent, "a lost lease was renewed")
	require.Len(h.e, h.seen(lease.Lost), 1)
}

// requireNoStorm wants at most PerSecond requests of the host in any second.
func (h *host) requireNoStorm() {
	h.e.Helper()
	calls, n := h.faults.Calls(""), h.e.PerSecond
	for i := n; i < len(calls); i++ {
		require.GreaterOrEqual(h.e, calls[i].Sent.Sub(calls[i-n].Sent), time.Second, "more than %d requests in a second", n)
	}
}

func clientCases() []storeCase {
	return []storeCase{
		{name: "ClientHoldsAndReleases", run: clientHoldsAndReleases},
		{name: "ClientSaves", run: clientSaves},
		{name: "AcquireWaits", run: acquireWaits},
		{name: "AcquireGivesUp", run: acquireGivesUp},
		{name: "DoRunsUnderTheLease", run: doRuns},
		{name: "CloseReleasesAll", run: closeReleasesAll},
		{name: "DY12_FiftyWaiters", virtual: true, run: fiftyWaiters},
	}
}

func clientHoldsAndReleases(e *env) {
	a, b := e.host("a"), e.host("b")
	ca, cb := a.client(), b.client()
	before := time.Now()
	l := a.acquire(ca, "job")
	require.Equal(e, "job", l.Name())
	require.Equal(e, ca.Holder(), l.Holder())
	require.Equal(e, a.inspect("job").Token, l.Token())
	require.Positive(e, l.Deadline().Sub(before))
	require.LessOrEqual(e, l.Deadline().Sub(before), e.TTL-ca.Options().Margin+e.slack())

	end := time.Now().Add(3 * e.TTL)
	for time.Now().Before(end) {
		_, err := cb.TryAcquire(e.Context(), "job")
		held, ok := errors.AsType[*lease.HeldError](err)
		require.True(e, ok, "%v", err)
		if !e.Anonymous {
			require.Equal(e, ca.Holder(), held.Holder)
			require.Equal(e, l.Token(), held.Token)
		}
		require.NoError(e, l.Err())
		time.Sleep(e.TTL / 5)
	}
	require.GreaterOrEqual(e, len(a.seen(lease.Renewed)), 6)
	require.Empty(e, a.seen(lease.Lost))
	ctx, cancel := l.Context(e.Context())
	defer cancel()
	require.NoError(e, l.Release(e.Context()))
	require.ErrorIs(e, l.Err(), lease.ErrReleased)
	require.NotErrorIs(e, l.Err(), lease.ErrLost)
	require.ErrorIs(e, context.Cause(ctx), lease.ErrReleased)
	next := b.acquire(cb, "job")
	require.Greater(e, next.Token(), l.Token())
	require.NoError(e, next.Release(e.Context()))
	a.requireNoStorm()
}

func clientSaves(e *env) {
	a, b := e.host("a"), e.host("b")
	l := a.acquire(a.client(), "job")
	require.NoError(e, l.Save(e.Context(), []byte("one")))
	require.Equal(e, "one", string(l.Value()))
	sent := len(a.faults.Calls(""))
	require.ErrorIs(e, l.Save(e.Context(), make([]byte, lease.MaxValue+1)), lease.ErrInvalid)
	require.ErrorIs(e, l.ReleaseWith(e.Context(), lease.Final{Value: make([]byte, lease.MaxValue+1)}), lease.ErrInvalid)
	require.Len(e, a.faults.Calls(""), sent, "a value that is too long was sent")
	require.NoError(e, l.Err())
	require.NoError(e, l.ReleaseWith(e.Context(), lease.Final{Value: []byte("two")}))
	require.ErrorIs(e, l.Save(e.Context(), []byte("three")), lease.ErrReleased)
	next := b.acquire(b.client(), "job")
	require.Equal(e, "two", string(next.Value()))
	require.NoError(e, next.Release(e.Context()))
}

func acquireWaits(e *env) {
	a, b := e.host("a"), e.host("b")
	l := a.acquire(a.client(), "job")
	got := make(chan struct{})
	var next *lease.Lease
	cb := b.client()
	go func() {
		defer close(got)
		var err error
		if next, err = cb.Acquire(e.Context(), "job"); err != nil {
			e.Errorf("acquire: %v", err)
		}
	}()
	time.Sleep(2 * e.TTL)
	require.NoError(e, l.Release(e.Context()))
	e.await(got, 2*time.Second+e.Slack, "the lock for the waiter")
	require.NotNil(e, next)
	e.history.Watch(next)
	require.Greater(e, next.Token(), l.Token())
	require.NoError(e, next.Release(e.Context()))
	b.requireNoStorm()
}

// acquireGivesUp when its context ends, at once and with both reasons.
func acquireGivesUp(e *env) {
	a, b := e.host("a"), e.host("b")
	l := a.acquire(a.client(), "job")
	cause := errors.New("the caller has lost interest")
	ctx, cancel := context.WithCancelCause(e.Context())
	gaveUp := make(chan struct{})
	cb := b.client()
	var err error
	go func() {
		defer close(gaveUp)
		_, err = cb.Acquire(ctx, "job")
	}()
	time.Sleep(e.TTL / 2)
	cancel(cause)
	e.await(gaveUp, 200*time.Millisecond, "the end of the wait")
	require.ErrorIs(e, err, cause)
	held, ok := errors.AsType[*lease.HeldError](err)
	require.True(e, ok, "%v", err)
	require.Equal(e, "job", held.Name)
	sent := len(b.faults.Calls(""))
	time.Sleep(e.TTL / 2)
	require.Len(e, b.faults.Calls(""), sent, "a waiter that gave up goes on asking")
	_, err = cb.Acquire(ctx, "other")
	require.ErrorIs(e, err, cause)
	require.Equal(e, lease.Absent, a.inspect("other").State)
	require.NoError(e, l.Release(e.Context()))
}

func doRuns(e *env) {
	a, b := e.host("a"), e.host("b")
	ca, cb := a.client(), b.client()
	failed := errors.New("the body failed")
	err := ca.Do(e.Context(), "job", func(ctx context.Context, l *lease.Lease) error {
		e.history.Watch(l)
		in, ok := lease.FromContext(ctx)
		require.True(e, ok)
		require.Same(e, l, in)
		_, err := cb.TryAcquire(e.Context(), "job")
		require.ErrorIs(e, err, lease.ErrHeld)
		return failed
	})
	require.ErrorIs(e, err, failed)
	l := b.acquire(cb, "job")
	require.NoError(e, l.Release(e.Context()))

	err = ca.Do(e.Context(), "job", func(ctx context.Context, l *lease.Lease) error {
		e.history.Watch(l)
		hole := a.faults.Add(Rule{Kind: BlackHole})
		<-ctx.Done()
		require.ErrorIs(e, context.Cause(ctx), lease.ErrLost)
		hole.Stop()
		return nil
	})
	require.ErrorIs(e, err, lease.ErrLost, "a body that does not notice the loss must not pass for done")
}

func closeReleasesAll(e *env) {
	a, b := e.host("a"), e.host("b")
	root := a.client()
	second := a.clientWith(lease.Options{TTL: e.TTL, Heartbeat: e.TTL / 4})
	l1, l2 := a.acquire(root, "one"), a.acquire(second, "two")
	require.NoError(e, second.Close(e.Context()))
	require.ErrorIs(e, l2.Err(), lease.ErrReleased)
	require.NoError(e, l1.Err(), "a client closed another's lease")
	require.Equal(e, lease.Free, b.inspect("two").State)
	_, err := second.TryAcquire(e.Context(), "two")
	require.ErrorIs(e, err, lease.ErrClosed)

	l3 := a.acquire(root, "three")
	require.NoError(e, root.Close(e.Context()))
	require.ErrorIs(e, l1.Err(), lease.ErrReleased)
	require.ErrorIs(e, l3.Err(), lease.ErrReleased)
	require.Equal(e, lease.Free, b.inspect("one").State)
	require.Equal(e, lease.Free, b.inspect("three").State)
	_, err = root.TryAcquire(e.Context(), "one")
	require.ErrorIs(e, err, lease.ErrClosed)
	sent := len(a.faults.Calls(""))
	time.Sleep(e.TTL)
	require.Len(e, a.faults.Calls(""), sent, "a closed client sends requests")
}
