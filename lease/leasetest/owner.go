package leasetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func ownerCases() []storeCase {
	return []storeCase{
		{name: "OnlyTheOwner", run: onlyTheOwner},
		{name: "GE02_StaleRelease", run: staleRelease},
		{name: "ReleaseTwice", run: releaseTwice},
		{name: "ReleaseOfAnUnknownAttempt", run: releaseOfUnknown},
		{name: "RenewAfterTheEnd", run: renewAfterTheEnd},
	}
}

// notOwners are grants that look like g and are not.
func notOwners(g lease.Grant) map[string]lease.Grant {
	otherAttempt, lower, higher := g, g, g
	otherAttempt.Attempt = newID()
	lower.Token--
	higher.Token++
	return map[string]lease.Grant{"another attempt": otherAttempt, "a lower token": lower, "a higher token": higher}
}

func onlyTheOwner(e *env) {
	a, b := e.host("a"), e.host("b")
	a.touch("job")
	g := a.take("job")
	g, err := a.store.Save(e.Context(), g, []byte("mine"))
	require.NoError(e, err)
	want := b.inspect("job")
	for what, bad := range notOwners(g) {
		_, err := b.store.Renew(e.Context(), bad)
		require.ErrorIs(e, err, lease.ErrLost, "renew with %s", what)
		_, err = b.store.Save(e.Context(), bad, []byte("theirs"))
		require.ErrorIs(e, err, lease.ErrLost, "save with %s", what)
		err = b.store.Release(e.Context(), bad, lease.Final{Value: []byte("theirs")})
		require.ErrorIs(e, err, lease.ErrLost, "release with %s", what)
		require.Equal(e, want, b.inspect("job"), "%s changed the lock", what)
	}
	a.free(g)
	require.Equal(e, "mine", string(a.inspect("job").Value))
}

// staleRelease is GE-02 a: a deferred release that runs when another has the lock.
func staleRelease(e *env) {
	a, b := e.host("a"), e.host("b")
	old := a.take("job")
	time.Sleep(e.takeover())
	g := b.take("job")
	want := b.inspect("job")
	_, err := a.store.Renew(e.Context(), old)
	require.ErrorIs(e, err, lease.ErrLost)
	_, err = a.store.Save(e.Context(), old, []byte("late"))
	require.ErrorIs(e, err, lease.ErrLost)
	err = a.store.Release(e.Context(), old, lease.Final{Value: []byte("late")})
	require.ErrorIs(e, err, lease.ErrLost)
	unknown := old
	unknown.Token = 0
	require.ErrorIs(e, a.store.Release(e.Context(), unknown, lease.Final{}), lease.ErrLost)
	require.Equal(e, want, b.inspect("job"), "the next holder was touched")
	g, err = b.store.Renew(e.Context(), g)
	require.NoError(e, err)
	b.free(g)
}

func releaseTwice(e *env) {
	a, b := e.host("a"), e.host("b")
	g := a.take("job")
	a.free(g)
	require.NoError(e, a.store.Release(e.Context(), g, lease.Final{}), "a release whose earlier try was stored is a success")
	next := b.take("job")
	require.ErrorIs(e, a.store.Release(e.Context(), g, lease.Final{}), lease.ErrLost)
	require.Equal(e, lease.Held, b.inspect("job").State)
	b.free(next)
	require.ErrorIs(e, a.store.Release(e.Context(), g, lease.Final{}), lease.ErrLost, "another's release is not this one's")
}

// releaseOfUnknown frees what an attempt of unknown outcome was granted, and nothing else.
func releaseOfUnknown(e *env) {
	a, b := e.host("a"), e.host("b")
	never := lease.Grant{Request: a.attempt("job")}
	require.ErrorIs(e, a.store.Release(e.Context(), never, lease.Final{}), lease.ErrLost, "a name that was never locked")
	g := a.take("job")
	require.ErrorIs(e, a.store.Release(e.Context(), never, lease.Final{}), lease.ErrLost, "another attempt's lock")
	require.ErrorIs(e, b.store.Release(e.Context(), lease.Grant{Request: b.attempt("job")}, lease.Final{}), lease.ErrLost)
	require.Equal(e, lease.Held, b.inspect("job").State)

	e.history.Release("job", g.Token)
	require.NoError(e, a.store.Release(e.Context(), lease.Grant{Request: g.Request}, lease.Final{}))
	require.Equal(e, lease.Free, b.inspect("job").State)
	next := b.take("job")
	require.Greater(e, next.Token, g.Token)
	b.free(next)
}

// renewAfterTheEnd is of a grant that is over.
func renewAfterTheEnd(e *env) {
	a, b := e.host("a"), e.host("b")
	g := a.take("job")
	a.free(g)
	want := b.inspect("job")
	_, err := a.store.Renew(e.Context(), g)
	require.ErrorIs(e, err, lease.ErrLost, "a released grant must not come to life again")
	_, err = a.store.Save(e.Context(), g, []byte("late"))
	require.ErrorIs(e, err, lease.ErrLost)
	require.Equal(e, want, b.inspect("job"))
	b.free(b.take("job"))
}
