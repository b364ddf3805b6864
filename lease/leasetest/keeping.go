package leasetest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func keepingCases() []storeCase {
	return []storeCase{
		{name: "DY01_RenewalAnswersLost", run: renewalAnswersLost},
		{name: "DY01_RecordOfAnother", run: recordOfAnother},
		{name: "DY03_SingleFailures", run: singleFailures},
		{name: "DY03_ShortThrottling", run: shortThrottling},
		{name: "DY03_LongThrottling", run: func(e *env) { outage(e, Rule{Kind: Fail, Failure: Throttled}) }},
		{name: "DY03_ServerErrors", run: func(e *env) { outage(e, Rule{Kind: Fail, Failure: Internal}) }},
		{name: "DY03_BlackHole", run: func(e *env) { outage(e, Rule{Kind: BlackHole}) }},
		{name: "DY03_ResetConnections", run: func(e *env) { outage(e, Rule{Kind: DropRequest}) }},
		{name: "DY03_AnswersTooLate", run: func(e *env) { outage(e, Rule{Kind: DelayAfter, Delay: e.TTL}) }},
		{name: "DY03_WaiterDuringAnOutage", run: waiterDuringOutage},
		{name: "SlowAnswersEndTrustFromTheSend", run: slowAnswers},
		{name: "GrantAfterItsDeadline", run: grantAfterItsDeadline},
	}
}

// renewalAnswersLost is DY-01: the renewals work and their answers are lost.
func renewalAnswersLost(e *env) {
	a, b := e.host("a"), e.host("b")
	hold := 4 * e.TTL
	if e.Virtual {
		hold = 20 * e.TTL
	}
	l := a.acquire(a.client(), "job")
	a.faults.Add(Rule{Kind: DropAnswer, Op: "renew", Every: 3})
	a.faults.Add(Rule{Kind: FailAfter, Op: "renew", Every: 5, Failure: Internal})
	a.faults.Add(Rule{Kind: DelayAfter, Op: "renew", Nth: 4, Delay: e.TTL / 2}) // its context ends first
	cb := b.client()
	for end := time.Now().Add(hold); time.Now().Before(end); time.Sleep(time.Second) {
		_, err := cb.TryAcquire(e.Context(), "job")
		require.ErrorIs(e, err, lease.ErrHeld)
		require.NoError(e, l.Err())
	}
	require.Empty(e, a.seen(lease.Lost))
	require.Equal(e, l.Token(), b.inspect("job").Token)
	renewed := a.seen(lease.Renewed)
	require.NotEmpty(e, renewed)
	require.Less(e, time.Since(renewed[len(renewed)-1].at), e.TTL*9/10, "the heartbeat has stopped")
	a.requireNoStorm()
	require.NoError(e, l.Release(e.Context()))
	b.acquire(cb, "job")
}

// recordOfAnother ends a lease at the next renewal: its record was deleted and another has the lock.
func recordOfAnother(e *env) {
	a, b := e.host("a"), e.host("b")
	l := a.acquire(a.client(), "job")
	time.Sleep(e.TTL)
	e.history.Forget("job")
	e.backend.Delete(e.T, "job")
	next := b.acquire(b.client(), "job")
	require.Greater(e, next.Token(), l.Token())
	e.await(l.Done(), e.TTL/2+slack, "the loss at the next renewal")
	require.ErrorIs(e, l.Err(), lease.ErrLost)
	require.ErrorIs(e, l.Release(e.Context()), lease.ErrLost)
	require.NoError(e, next.Err())
	require.Equal(e, next.Token(), b.inspect("job").Token)
	require.Equal(e, lease.Held, b.inspect("job").State)
	require.NoError(e, next.Release(e.Context()))
}

// singleFailures is DY-03 a: one of each, spread out.
func singleFailures(e *env) {
	a := e.host("a")
	l := a.acquire(a.client(), "job")
	a.faults.Add(Rule{Kind: Fail, Op: "renew", Nth: 1, Failure: Unavailable})
	a.faults.Add(Rule{Kind: DropRequest, Op: "renew", Nth: 3})
	a.faults.Add(Rule{Kind: Fail, Op: "renew", Nth: 5, Failure: Throttled})
	a.faults.Add(Rule{Kind: Fail, Op: "renew", Nth: 7, Failure: Internal})
	time.Sleep(4 * e.TTL)
	require.NoError(e, l.Err())
	require.Len(e, a.seen(lease.RenewFailed), 4)
	a.requireNoStorm()
	require.NoError(e, l.Release(e.Context()))
}

// renewedOnce waits for the next good renewal.
func (h *host) renewedOnce() {
	h.e.Helper()
	n := len(h.seen(lease.Renewed))
	h.e.eventually(h.e.TTL, func() bool { return len(h.seen(lease.Renewed)) > n }, "no renewal came")
}

// shortThrottling is DY-03 b: half a TTL.
func shortThrottling(e *env) {
	a := e.host("a")
	l := a.acquire(a.client(), "job")
	a.renewedOnce()
	throttled := a.faults.Add(Rule{Kind: Fail, Failure: Throttled})
	time.Sleep(e.TTL / 2)
	throttled.Stop()
	require.GreaterOrEqual(e, throttled.Fired(), 2, "a failed renewal must be tried again soon")
	time.Sleep(e.TTL)
	require.NoError(e, l.Err())
	require.Empty(e, a.seen(lease.Lost))
	a.requireNoStorm()
	require.NoError(e, l.Release(e.Context()))
}

// outage is DY-03 c and d: the service does not answer for two TTLs, or not in time.
func outage(e *env, r Rule) {
	a, b := e.host("a"), e.host("b")
	ca, cb := a.client(), b.client()
	l := a.acquire(ca, "job")
	a.renewedOnce()
	out := a.faults.Add(r)
	began := time.Now()
	a.requireLostInTime(ca, l)
	a.requireStaysLost(l, 2*e.TTL-time.Since(began))
	out.Stop()
	a.requireStaysLost(l, e.TTL/2) // the service is well again
	require.ErrorIs(e, l.Err(), lease.ErrLost)

	healthy := time.Now()
	ctx, cancel := context.WithTimeout(e.Context(), e.takeover())
	defer cancel()
	again, err := ca.Acquire(ctx, "job")
	require.NoError(e, err)
	e.history.Watch(again)
	require.Less(e, time.Since(healthy), 3*time.Second+e.Slack)
	require.Greater(e, again.Token(), l.Token())
	require.ErrorIs(e, l.Release(e.Context()), lease.ErrLost)
	require.NoError(e, again.Err())
	_, err = cb.TryAcquire(e.Context(), "job")
	require.ErrorIs(e, err, lease.ErrHeld, "the release of the old lease has freed the new one")
	a.requireNoStorm()
	require.NoError(e, again.Release(e.Context()))
}

// waiterDuringOutage goes on asking, not too often, and is served when the service is well again.
func waiterDuringOutage(e *env) {
	for _, r := range []Rule{{Kind: Fail, Failure: Throttled}, {Kind: DropRequest}} {
		a := e.host("a-" + string(r.Kind))
		c := a.client()
		out := a.faults.Add(r)
		time.AfterFunc(e.TTL/2, out.Stop)
		ctx, cancel := context.WithTimeout(e.Context(), e.takeover())
		l, err := c.Acquire(ctx, "job")
		cancel()
		require.NoError(e, err)
		e.history.Watch(l)
		require.Greater(e, out.Fired(), 2)
		a.requireNoStorm()
		require.NoError(e, l.Release(e.Context()))
	}
}

// slowAnswers come just in time; then none comes. The deadline counts from the last send, not from the last answer.
func slowAnswers(e *env) {
	a, b := e.host("a"), e.host("b")
	ca := a.client()
	delay := e.TTL / 12
	slow := a.faults.Add(Rule{Kind: DelayAfter, Delay: delay})
	l := a.acquire(ca, "job")
	require.LessOrEqual(e, time.Until(l.Deadline()), ca.Options().TTL-ca.Options().Margin-delay+e.slack())
	a.renewedOnce()
	slow.Stop()
	a.faults.Add(Rule{Kind: BlackHole})
	a.requireLostInTime(ca, l)
	e.history.Hold("job", "b", e.takeWhenDead(b, "job").Token, func() bool { return false })
}

// takeWhenDead acquires name as soon as the service gives it.
func (e *env) takeWhenDead(h *host, name string) lease.Grant {
	e.Helper()
	var g lease.Grant
	e.eventually(e.takeover(), func() bool {
		var err error
		g, err = h.store.TryAcquire(e.Context(), h.attempt(name))
		if err != nil {
			require.ErrorIs(e, err, lease.ErrHeld)
		}
		return err == nil
	}, "the dead lock was not given to anybody")
	return g
}

// grantAfterItsDeadline is not handed out, but given back.
func grantAfterItsDeadline(e *env) {
	a, b := e.host("a"), e.host("b")
	ca := a.clientWith(lease.Options{TTL: e.TTL, CallTimeout: 3 * e.TTL})
	a.touch("job")
	a.faults.Add(Rule{Kind: DelayAfter, Op: "acquire", Delay: e.TTL, Nth: 1})
	l, err := ca.TryAcquire(e.Context(), "job")
	require.Nil(e, l)
	require.Error(e, err)
	require.False(e, errors.Is(err, lease.ErrHeld), "%v", err)
	e.eventually(slack, func() bool { return len(a.seen(lease.Abandoned)) == 1 }, "the grant was not given back")
	require.NoError(e, a.seen(lease.Abandoned)[0].Err)
	require.Equal(e, lease.Free, b.inspect("job").State)
}
