package leasetest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func answerCases() []storeCase {
	return []storeCase{
		{name: "DY02_AcquireAnswerLost", run: acquireAnswerLost},
		{name: "DY01_RenewAnswerLost", run: renewAnswerLost},
		{name: "DY02_ReleaseAnswerLost", run: releaseAnswerLost},
		{name: "SaveAnswerLost", run: saveAnswerLost},
		{name: "TrustCountsFromTheSend", run: trustCountsFromTheSend},
		{name: "LateRequests", run: lateRequests},
		{name: "DuplicateRequests", run: duplicateRequests},
		{name: "EndOfTheContext", run: endOfTheContext},
		{name: "FailuresHaveClasses", run: failuresHaveClasses},
	}
}

// lostKinds are the ways in which an answer does not come although the effect did.
var lostKinds = []Rule{
	{Kind: DropAnswer}, {Kind: FailAfter, Failure: Internal}, {Kind: FailAfter, Failure: Unavailable},
}

// eachRequest calls f with the answer to one request of op lost, for every request that f sends and every way to lose it.
func (e *env) eachRequest(h *host, op string, f func(lost *Fault)) {
	e.Helper()
	for _, rule := range lostKinds {
		rule.Op = op
		for rule.Nth = 1; ; rule.Nth++ {
			lost := h.faults.Add(rule)
			f(lost)
			lost.Stop()
			if lost.Fired() == 0 {
				h.faults.Remove(lost)
				break
			}
		}
		require.Greater(e, rule.Nth, 1, "the fault never hit a request of %q", op)
	}
}

// transient tells whether a caller may try again.
func transient(err error) bool {
	return errors.Is(err, lease.ErrInDoubt) || errors.Is(err, lease.ErrUnavailable)
}

// acquireAnswerLost is DY-02 a and d below the client: the retry finds its own lock.
func acquireAnswerLost(e *env) {
	a, b := e.host("a"), e.host("b")
	a.touch("job")
	e.eachRequest(a, "acquire", func(lost *Fault) {
		r := a.attempt("job")
		g, err := a.store.TryAcquire(e.Context(), r)
		lost.Stop()
		stored := b.inspect("job")
		found := err != nil && stored.State == lease.Held
		if err != nil {
			require.Positive(e, lost.Fired())
			require.True(e, transient(err), "%v", err)
			if stored.State == lease.Held {
				require.ErrorIs(e, err, lease.ErrInDoubt, "the grant exists")
			}
			time.Sleep(e.TTL / 4)
			g, err = a.store.TryAcquire(e.Context(), r)
			require.NoError(e, err)
		}
		e.sane(r, g)
		if found {
			require.Equal(e, stored.Token, g.Token, "the retry must find the grant of the first try")
			left := e.TTL - a.clock.Now().Fast(r.Since)
			require.LessOrEqual(e, a.trust(g), left, "trust must count from the first send")
		}
		require.Equal(e, g.Token, b.inspect("job").Token)
		again, err := a.store.TryAcquire(e.Context(), r)
		require.NoError(e, err, "the same attempt again")
		require.Equal(e, g.Token, again.Token)
		e.history.Hold("job", "a", g.Token, func() bool { return a.trust(g) > 0 })
		a.free(again)
	})
}

func renewAnswerLost(e *env) {
	a, b := e.host("a"), e.host("b")
	g := a.take("job")
	e.eachRequest(a, "renew", func(lost *Fault) {
		before := a.trust(g)
		_, err := a.store.Renew(e.Context(), g)
		if lost.Fired() > 0 {
			require.True(e, err == nil || transient(err), "a lost answer is no loss: %v", err)
		}
		lost.Stop()
		time.Sleep(e.TTL / 10)
		renewed, err := a.store.Renew(e.Context(), g)
		require.NoError(e, err)
		require.Greater(e, a.trust(renewed), before-e.TTL/10)
		g = renewed
		_, err = b.store.TryAcquire(e.Context(), b.attempt("job"))
		require.ErrorIs(e, err, lease.ErrHeld)
	})
	a.free(g)
}

func releaseAnswerLost(e *env) {
	a, b := e.host("a"), e.host("b")
	e.eachRequest(a, "release", func(lost *Fault) {
		g := a.take("job")
		e.history.Release("job", g.Token)
		err := a.store.Release(e.Context(), g, lease.Final{Value: []byte("final")})
		lost.Stop()
		if err != nil {
			require.True(e, transient(err), "%v", err)
			require.NoError(e, a.store.Release(e.Context(), g, lease.Final{Value: []byte("final")}))
		}
		require.Equal(e, lease.Free, b.inspect("job").State)
		next := b.take("job")
		require.Equal(e, "final", string(next.Value))
		require.ErrorIs(e, a.store.Release(e.Context(), g, lease.Final{}), lease.ErrLost)
		b.free(next)
	})
}

func saveAnswerLost(e *env) {
	a, b := e.host("a"), e.host("b")
	g := a.take("job")
	e.eachRequest(a, "save", func(lost *Fault) {
		_, err := a.store.Save(e.Context(), g, []byte("value"))
		require.True(e, err == nil || transient(err), "%v", err)
		lost.Stop()
		saved, err := a.store.Save(e.Context(), g, []byte("value"))
		require.NoError(e, err)
		require.Equal(e, "value", string(b.inspect("job").Value))
		g = saved
	})
	a.free(g)
}

// trustCountsFromTheSend holds requests and answers up.
func trustCountsFromTheSend(e *env) {
	a := e.host("a")
	a.touch("job")
	delay := e.TTL / 4
	for _, kind := range []Kind{DelayBefore, DelayAfter} {
		slow := a.faults.Add(Rule{Kind: kind, Op: "acquire", Delay: delay})
		g := a.take("job")
		slow.Stop()
		require.LessOrEqual(e, a.trust(g), e.TTL-delay, "acquire, %s", kind)
		for op, renew := range map[string]func() (lease.Grant, error){
			"renew": func() (lease.Grant, error) { return a.store.Renew(e.Context(), g) },
			"save":  func() (lease.Grant, error) { return a.store.Save(e.Context(), g, []byte("v")) },
		} {
			slow := a.faults.Add(Rule{Kind: kind, Op: op, Delay: delay})
			renewed, err := renew()
			slow.Stop()
			require.NoError(e, err)
			require.LessOrEqual(e, a.trust(renewed), e.TTL-delay, "%s, %s", op, kind)
			require.Positive(e, a.trust(renewed))
			g = renewed
		}
		a.free(g)
	}
}

// abandoned starts a call whose request is under way for d, and gives it up after a moment.
func (e *env) abandoned(h *host, op string, d time.Duration, call func(context.Context) error) {
	e.Helper()
	slow := h.faults.Add(Rule{Kind: DelayBefore, Op: op, Nth: 1, Delay: d})
	ctx, cancel := context.WithTimeout(e.Context(), e.TTL/20)
	defer cancel()
	err := call(ctx)
	slow.Stop()
	require.ErrorIs(e, err, lease.ErrInDoubt, "%s", op)
	require.ErrorIs(e, err, context.DeadlineExceeded, "%s", op)
}

// lateRequests arrive after the release of their grant, when the lock is free and when another has it.
func lateRequests(e *env) {
	a, b := e.host("a"), e.host("b")
	for _, taken := range []bool{false, true} {
		g := a.take("job")
		late := e.TTL / 2
		e.abandoned(a, "renew", late, func(ctx context.Context) error { _, err := a.store.Renew(ctx, g); return err })
		e.abandoned(a, "save", late, func(ctx context.Context) error {
			_, err := a.store.Save(ctx, g, []byte("late"))
			return err
		})
		e.abandoned(a, "release", late, func(ctx context.Context) error {
			return a.store.Release(ctx, g, lease.Final{Value: []byte("late")})
		})
		a.free(g)
		var next lease.Grant
		if taken {
			next = b.take("job")
		}
		want := b.inspect("job")
		a.faults.Settle()
		require.Equal(e, want, b.inspect("job"), "a late request changed the lock; taken: %v", taken)
		if taken {
			next, err := b.store.Renew(e.Context(), next)
			require.NoError(e, err)
			b.free(next)
		}
	}
}

// duplicateRequests arrive a second time, when another holder has the lock.
func duplicateRequests(e *env) {
	a, b := e.host("a"), e.host("b")
	for _, op := range []string{"renew", "save", "release"} {
		g := a.take("job")
		twice := a.faults.Add(Rule{Kind: Duplicate, Op: op, Delay: e.TTL / 4})
		var err error
		switch op {
		case "renew":
			g, err = a.store.Renew(e.Context(), g)
		case "save":
			g, err = a.store.Save(e.Context(), g, nil)
		}
		require.NoError(e, err)
		a.free(g)
		twice.Stop()
		next := b.take("job")
		want := b.inspect("job")
		a.faults.Settle()
		require.Equal(e, want, b.inspect("job"), "a second %s changed the next holder's lock", op)
		b.free(next)
	}
}

// requireClass wants class to be that of err itself, not of what it wraps.
func requireClass(t require.TestingT, class, err error, what string) {
	typed, ok := errors.AsType[*lease.Error](err)
	require.True(t, ok, "%s: %T: %v", what, err, err)
	require.ErrorIs(t, typed.Class, class, "%s: %v", what, err)
}

// endOfTheContext returns a call at once, in doubt. The context may end because of another lease's loss, which is not the
// loss of this one.
func endOfTheContext(e *env) {
	cause := &lease.Error{Op: "hold", Store: "another store", Name: "another lock", Class: lease.ErrLost}
	a, b := e.host("a"), e.host("b")
	a.touch("job")
	g := a.take("other")
	calls := map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error { _, err := a.store.TryAcquire(ctx, a.attempt("job")); return err },
		"renew":   func(ctx context.Context) error { _, err := a.store.Renew(ctx, g); return err },
		"save":    func(ctx context.Context) error { _, err := a.store.Save(ctx, g, nil); return err },
		"release": func(ctx context.Context) error { return a.store.Release(ctx, g, lease.Final{}) },
	}
	for op, call := range calls {
		hole := a.faults.Add(Rule{Kind: BlackHole, Op: op})
		ctx, cancel := context.WithTimeoutCause(e.Context(), e.TTL/10, cause)
		began := time.Now()
		err := call(ctx)
		hole.Stop()
		requireClass(e, lease.ErrInDoubt, err, op)
		require.Less(e, time.Since(began), e.TTL/10+200*time.Millisecond, op)
		sent := len(a.faults.Calls(op))
		err = call(ctx)
		cancel()
		requireClass(e, lease.ErrUnavailable, err, op+": nothing was sent")
		require.Len(e, a.faults.Calls(op), sent, "%s: a request was sent although the context had ended", op)
	}
	b.free(b.take("job"))
	a.free(g)
}

func failuresHaveClasses(e *env) {
	a := e.host("a")
	a.touch("job")
	class := map[Failure]error{
		Throttled: lease.ErrUnavailable, Unavailable: nil, Internal: lease.ErrInDoubt, Denied: lease.ErrDenied,
	}
	for f, want := range class {
		g := a.take("other")
		bad := a.faults.Add(Rule{Kind: Fail, Failure: f})
		for op, call := range map[string]func() error{
			"acquire": func() error { _, err := a.store.TryAcquire(e.Context(), a.attempt("job")); return err },
			"renew":   func() error { _, err := a.store.Renew(e.Context(), g); return err },
			"save":    func() error { _, err := a.store.Save(e.Context(), g, nil); return err },
			"release": func() error { return a.store.Release(e.Context(), g, lease.Final{}) },
			"inspect": func() error { _, err := a.store.Inspect(e.Context(), "job"); return err },
		} {
			err := call()
			require.Error(e, err, "%s, %s", op, f)
			if want == nil || op == "inspect" && transient(want) {
				require.True(e, transient(err), "%s, %s: %v", op, f, err)
			} else {
				require.ErrorIs(e, err, want, "%s, %s", op, f)
			}
			typed, ok := errors.AsType[*lease.Error](err)
			require.True(e, ok, "%s, %s: %T", op, f, err)
			require.NotEmpty(e, typed.Op)
			require.Equal(e, a.store.Limits().Store, typed.Store)
			require.NotNil(e, typed.Err, "%s, %s: the service's own error must stay reachable", op, f)
		}
		bad.Stop()
		a.free(g)
	}
}
