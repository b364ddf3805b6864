package leasetest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func lookCases() []storeCase {
	return []storeCase{
		{name: "LookTellsWhatAnAttemptWouldFind", run: lookTells},
		{name: "LookFailsAsInspectDoes", run: lookFails},
	}
}

// looker is the host's store as a Looker, if it is one.
func (h *host) looker() (lease.Looker, bool) {
	l, ok := h.store.(lease.Looker)
	if !ok {
		h.e.Log("the store is no Looker")
		return nil, false
	}
	_, waits := h.store.(lease.Waiter)
	require.False(h.e, waits, "a store that wakes its waiters need not be looked at")
	return l, true
}

// lookTells is what a look says of a lock in every state. It is one request and changes nothing.
func lookTells(e *env) {
	a, b := e.host("a"), e.host("b")
	l, ok := b.looker()
	if !ok {
		return
	}
	look := func() (lease.Token, error) {
		e.Helper()
		before := a.inspect("job")
		sent := len(b.faults.Calls(""))
		token, err := l.Look(e.Context(), "job")
		require.Len(e, b.faults.Calls(""), sent+1, "the requests of a look")
		require.Equal(e, before, a.inspect("job"), "a look changes nothing")
		return token, err
	}
	free := func(want lease.Token, state string) {
		e.Helper()
		token, err := look()
		require.NoError(e, err, state)
		require.Equal(e, want, token, state)
	}
	free(0, "nobody has had it")
	for range 2 { // of a lock that b has not seen before, and of one that it has
		g := a.take("job")
		for range 2 {
			token, err := look()
			held, ok := errors.AsType[*lease.HeldError](err)
			require.True(e, ok, "%T: %v", err, err)
			require.Equal(e, "job", held.Name)
			require.Equal(e, g.Token, token)
			if !e.Anonymous {
				require.Equal(e, g.Token, held.Token)
				require.Equal(e, "a", held.Holder)
			}
			require.GreaterOrEqual(e, held.RetryAfter, time.Duration(0))
			require.LessOrEqual(e, held.RetryAfter, e.takeover())
		}
		g, err := a.store.Renew(e.Context(), g)
		require.NoError(e, err)
		a.free(g)
		free(g.Token, "released")
	}
	g := a.take("job") // and dies
	_, err := look()
	require.ErrorIs(e, err, lease.ErrHeld)
	time.Sleep(e.takeover())
	free(g.Token, "dead")
	next := b.take("job")
	require.Greater(e, next.Token, g.Token)
	b.free(next)
}

// lookFails is a look that the service refuses, or whose context has ended.
func lookFails(e *env) {
	a := e.host("a")
	l, ok := a.looker()
	if !ok {
		return
	}
	g := a.take("job")
	for f, want := range map[Failure]error{Throttled: nil, Unavailable: nil, Internal: nil, Denied: lease.ErrDenied} {
		bad := a.faults.Add(Rule{Kind: Fail, Op: "wait", Failure: f})
		token, err := l.Look(e.Context(), "job")
		bad.Stop()
		require.Zero(e, token, f)
		if want == nil {
			require.True(e, transient(err), "%s: %v", f, err)
		} else {
			requireClass(e, want, err, string(f))
		}
	}
	hole := a.faults.Add(Rule{Kind: BlackHole, Op: "wait"})
	ctx, cancel := context.WithTimeout(e.Context(), e.TTL/20)
	defer cancel()
	_, err := l.Look(ctx, "job")
	hole.Stop()
	require.True(e, transient(err), "%v", err)
	require.ErrorIs(e, err, context.DeadlineExceeded)
	sent := len(a.faults.Calls("wait"))
	_, err = l.Look(ctx, "job")
	requireClass(e, lease.ErrUnavailable, err, "the context had ended")
	require.Len(e, a.faults.Calls("wait"), sent, "a request was sent although the context had ended")
	a.free(g)
}
