package leasetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func unansweredCases() []storeCase {
	return []storeCase{
		{name: "DY02_ClientAcquireAnswerLost", run: clientAcquireAnswerLost},
		{name: "DY02_CallerGivesUp", run: callerGivesUp},
		{name: "DY02_CallerGivesUpAndTheRequestIsLate", run: lateAfterGivingUp},
		{name: "DY02_ClientReleaseAnswerLost", run: clientReleaseAnswerLost},
		{name: "DY02_ReleasedAndTaken", run: releasedAndTaken},
		{name: "DY02_ReleaseNeverStored", run: releaseNeverStored},
		{name: "DY02_ClientReleasesTwice", run: clientReleasesTwice},
		{name: "DY11_ReleaseDuringARenewal", run: releaseDuringRenewal},
		{name: "DY11_AcquireAgainAtOnce", run: acquireAgainAtOnce},
	}
}

// clientAcquireAnswerLost is DY-02 a and d.
func clientAcquireAnswerLost(e *env) {
	a, b := e.host("a"), e.host("b")
	a.touch("job")
	c := a.client()
	e.eachRequest(a, "acquire", func(lost *Fault) {
		began := time.Now()
		l := a.acquire(c, "job")
		lost.Stop()
		require.Less(e, time.Since(began), 2*time.Second)
		stored := b.inspect("job")
		require.Equal(e, lease.Held, stored.State)
		require.Equal(e, stored.Token, l.Token())
		if !e.Anonymous {
			require.Equal(e, c.Holder(), stored.Holder)
		}
		time.Sleep(e.TTL / 2)
		require.NoError(e, l.Err())
		require.NoError(e, l.Release(e.Context()))
		require.Equal(e, lease.Free, b.inspect("job").State)
	})
}

// callerGivesUp is DY-02 b: the caller's context ends before any answer.
func callerGivesUp(e *env) {
	a, b := e.host("a"), e.host("b")
	a.touch("job")
	c := a.client()
	for i, kind := range []Kind{DelayAfter, BlackHole} {
		a.faults.Add(Rule{Kind: kind, Op: "acquire", Nth: 1, Delay: e.TTL})
		ctx, cancel := context.WithTimeout(e.Context(), e.TTL/20)
		began := time.Now()
		l, err := c.TryAcquire(ctx, "job")
		cancel()
		require.Nil(e, l)
		require.Less(e, time.Since(began), e.TTL/20+200*time.Millisecond)
		require.ErrorIs(e, err, lease.ErrInDoubt, "%s", kind)
		require.ErrorIs(e, err, context.DeadlineExceeded, "%s", kind)
		e.eventually(slack, func() bool { return len(a.seen(lease.Abandoned)) == i+1 }, "%s: nobody was told of a give-back", kind)
		require.NoError(e, a.seen(lease.Abandoned)[i].Err)
		require.Equal(e, lease.Free, b.inspect("job").State)
		b.free(b.take("job"))
		a.faults.Settle()
	}
	require.NoError(e, c.Close(e.Context()), "closing waits for what is given back")
}

// lateAfterGivingUp is an acquire that arrives after it was given back. It may lock for one TTL, not for longer.
func lateAfterGivingUp(e *env) {
	a, b := e.host("a"), e.host("b")
	a.touch("job")
	c := a.client()
	a.faults.Add(Rule{Kind: DelayBefore, Op: "acquire", Nth: 1, Delay: e.TTL / 4})
	ctx, cancel := context.WithTimeout(e.Context(), e.TTL/20)
	defer cancel()
	_, err := c.TryAcquire(ctx, "job")
	require.ErrorIs(e, err, lease.ErrInDoubt)
	a.faults.Settle()
	landed := time.Now()
	g := e.takeWhenDead(b, "job")
	require.LessOrEqual(e, time.Since(landed), e.takeover())
	e.history.Hold("job", "b", g.Token, func() bool { return b.trust(g) > 0 })
	time.Sleep(e.TTL / 4)
	require.Equal(e, lease.Held, a.inspect("job").State)
	b.free(g)
}

func clientReleaseAnswerLost(e *env) {
	a, b := e.host("a"), e.host("b")
	ca, cb := a.client(), b.client()
	e.eachRequest(a, "release", func(lost *Fault) {
		l := a.acquire(ca, "job")
		err := l.Release(e.Context())
		lost.Stop()
		require.NoError(e, err)
		next := b.acquire(cb, "job")
		require.NoError(e, next.Release(e.Context()))
	})
	require.Empty(e, a.seen(lease.Lost))
	require.Empty(e, a.seen(lease.ReleaseFailed))
}

// releasedAndTaken is DY-02 c: before the release whose answer was lost is tried again, another acquires.
func releasedAndTaken(e *env) {
	a, b := e.host("a"), e.host("b")
	ca, cb := a.client(), b.client()
	for i, final := range []lease.Final{{}, {Value: []byte("left behind")}} {
		name := fmt.Sprint("job", i)
		l := a.acquire(ca, name)
		lost := a.faults.Add(Rule{Kind: DropAnswer, Op: "release", Nth: 1})
		slow := a.faults.Add(Rule{Kind: DelayBefore, Op: "release", Nth: 2, Delay: e.TTL / 4})
		released := make(chan struct{})
		var err error
		go func() {
			defer close(released)
			err = l.ReleaseWith(e.Context(), final)
		}()
		e.eventually(2*time.Second, func() bool { return slow.Fired() == 1 }, "the release was not tried again")
		next := b.acquire(cb, name)
		want := b.inspect(name)
		e.await(released, e.TTL, "the end of the release")
		if final.Value == nil {
			require.NoError(e, err, "it was released, and is held by another since")
		} else {
			require.ErrorIs(e, err, lease.ErrInDoubt, "what it left behind may be stored or not")
		}
		require.Equal(e, want, b.inspect(name), "the next holder was touched")
		require.Equal(e, final.Value, next.Value())
		require.NoError(e, next.Err())
		require.NoError(e, next.Release(e.Context()))
		lost.Stop()
		slow.Stop()
	}
	require.Empty(e, a.seen(lease.Lost))
	require.Len(e, a.seen(lease.ReleaseFailed), 1, "that of which something is in doubt")
}

// releaseNeverStored arrives when another has the lock: what it should leave behind was not kept, and that must be told.
func releaseNeverStored(e *env) {
	a, b := e.host("a"), e.host("b")
	l := a.acquire(a.clientWith(lease.Options{TTL: e.TTL, CallTimeout: 2 * e.takeover()}), "job")
	a.faults.Add(Rule{Kind: DropRequest, Op: "release", Nth: 1})
	slow := a.faults.Add(Rule{Kind: DelayBefore, Op: "release", Nth: 2, Delay: e.takeover() + e.TTL/2})
	released := make(chan struct{})
	var err error
	go func() {
		defer close(released)
		err = l.ReleaseWith(e.Context(), lease.Final{Value: []byte("never kept")})
	}()
	e.eventually(2*time.Second, func() bool { return slow.Fired() == 1 }, "the release was not tried again")
	g := e.takeWhenDead(b, "job")
	e.history.Hold("job", "b", g.Token, func() bool { return b.trust(g) > 0 })
	require.Empty(e, g.Value)
	for renewing := true; renewing; {
		select {
		case <-released:
			renewing = false
		case <-time.After(e.TTL / 3):
			var renewErr error
			g, renewErr = b.store.Renew(e.Context(), g)
			require.NoError(e, renewErr)
		}
	}
	require.Error(e, err, "a release that was never stored passes for done")
	require.True(e, errors.Is(err, lease.ErrLost) || errors.Is(err, lease.ErrInDoubt), "%v", err)
	b.free(g)
}

// clientReleasesTwice is DY-02 e.
func clientReleasesTwice(e *env) {
	a, b := e.host("a"), e.host("b")
	l := a.acquire(a.client(), "job")
	require.NoError(e, l.Release(e.Context()))
	sent := len(a.faults.Calls("release"))
	next := b.acquire(b.client(), "job")
	require.NoError(e, l.Release(e.Context()), "a second release returns what the first did")
	require.ErrorIs(e, l.ReleaseWith(e.Context(), lease.Final{Value: []byte("late")}), lease.ErrReleased,
		"nothing says that the value was not kept")
	require.Len(e, a.faults.Calls("release"), sent, "a second release was sent")
	require.NoError(e, next.Err())
	require.Empty(e, b.inspect("job").Value)
	require.NoError(e, next.Release(e.Context()))
}

// releaseDuringRenewal is DY-11 a.
func releaseDuringRenewal(e *env) {
	for _, kind := range []Kind{DelayBefore, DelayAfter} {
		a, b := e.host("a-"+string(kind)), e.host("b-"+string(kind))
		ca, cb := a.client(), b.client()
		name := "job " + string(kind)
		l := a.acquire(ca, name)
		slow := a.faults.Add(Rule{Kind: kind, Op: "renew", Nth: 1, Delay: e.TTL / 4})
		e.eventually(e.TTL, func() bool { return slow.Fired() == 1 }, "no renewal was sent")
		time.Sleep(e.TTL / 30)
		began := time.Now()
		require.NoError(e, l.Release(e.Context()))
		require.Less(e, time.Since(began), slack, "a release must not wait for a renewal under way")
		sent := len(a.faults.Calls(""))
		var next *lease.Lease
		e.eventually(500*time.Millisecond, func() bool {
			var err error
			next, err = cb.TryAcquire(e.Context(), name)
			return err == nil
		}, "the lock was not free after its release")
		e.history.Watch(next)
		time.Sleep(2 * e.TTL)
		require.Len(e, a.faults.Calls(""), sent, "a request was sent after the release had returned")
		require.NoError(e, next.Err(), "the late renewal has disturbed the next holder")
		require.Equal(e, next.Token(), b.inspect(name).Token)
		require.Empty(e, a.seen(lease.Lost))
		require.NoError(e, next.Release(e.Context()))
	}
}

// acquireAgainAtOnce is DY-11 b: the next lease is kept alive as well.
func acquireAgainAtOnce(e *env) {
	a := e.host("a")
	c := a.client()
	for range min(e.Rounds, 50) {
		l := a.acquire(c, "job")
		time.Sleep(2 * e.TTL)
		require.NoError(e, l.Err())
		require.NoError(e, l.Release(e.Context()))
	}
	require.Empty(e, a.seen(lease.Lost))
}
