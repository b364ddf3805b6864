package leasetest

import (
	crand "crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func newID() string { return strings.ToLower(crand.Text()) }

func basicCases() []storeCase {
	return []storeCase{
		{name: "GrantRenewRelease", run: grantRenewRelease},
		{name: "HeldNamesTheHolder", run: heldNamesTheHolder},
		{name: "TokensGrow", run: tokensGrow},
		{name: "RaceHasOneWinner", run: raceHasOneWinner},
		{name: "RaceForTheDeadHasOneWinner", run: raceForTheDead},
		{name: "Values", run: values},
		{name: "InspectStates", run: inspectStates},
	}
}

func grantRenewRelease(e *env) {
	a, b := e.host("a"), e.host("b")
	before := a.clock.Now()
	g := a.take("job")
	require.Empty(e, g.Value)
	require.GreaterOrEqual(e, g.Sent.Mono, before.Mono)
	require.LessOrEqual(e, g.Sent.Mono, a.clock.Now().Mono)
	for range 4 { // longer than one TTL
		time.Sleep(e.TTL / 3)
		sent := a.clock.Now()
		renewed, err := a.store.Renew(e.Context(), g)
		require.NoError(e, err)
		e.sane(g.Request, renewed)
		require.Equal(e, g.Token, renewed.Token)
		require.GreaterOrEqual(e, renewed.Sent.Mono, sent.Mono, "trust must be counted from the renewal")
		require.Greater(e, a.trust(renewed), a.trust(g), "a renewal must lengthen the trust")
		g = renewed
	}
	_, err := b.store.TryAcquire(e.Context(), b.attempt("job"))
	require.ErrorIs(e, err, lease.ErrHeld)
	a.free(g)
	next := b.take("job")
	require.Greater(e, next.Token, g.Token)
	b.free(next)
}

func heldNamesTheHolder(e *env) {
	a, b := e.host("a"), e.host("b")
	g := a.take("job")
	_, err := b.store.TryAcquire(e.Context(), b.attempt("job"))
	held, ok := errors.AsType[*lease.HeldError](err)
	require.True(e, ok, "%T: %v", err, err)
	require.Equal(e, "job", held.Name)
	if !e.Anonymous {
		require.Equal(e, "a", held.Holder)
		require.Equal(e, g.Token, held.Token)
		require.Contains(e, err.Error(), "held by a with token")
	}
	require.GreaterOrEqual(e, held.RetryAfter, time.Duration(0))
	require.LessOrEqual(e, held.RetryAfter, e.takeover())

	_, err = a.store.TryAcquire(e.Context(), a.attempt("job"))
	require.ErrorIs(e, err, lease.ErrHeld, "another attempt of the holder itself is another's")
}

// tokensGrow lets a lock end in every way.
func tokensGrow(e *env) {
	a, b := e.host("a"), e.host("b")
	for round := range 3 {
		g := a.take("job")
		a.free(g)
		g = b.take("job") // after a release; and never released: a crash
		time.Sleep(e.takeover())
		g2 := a.take("job")
		require.Greater(e, g2.Token, g.Token, "after an expiry")
		if round == 1 {
			a.free(g2)
		}
		e.history.Forget("job")
		e.backend.Delete(e.T, "job") // held in the other rounds
		g3 := b.take("job")
		require.Greater(e, g3.Token, g2.Token, "after a deletion")
		_, err := a.store.Renew(e.Context(), g2)
		require.ErrorIs(e, err, lease.ErrLost, "the record of this grant was deleted")
		require.ErrorIs(e, a.store.Release(e.Context(), g2, lease.Final{}), lease.ErrLost)
		b.free(g3)
	}
}

func raceHasOneWinner(e *env) {
	hosts := []*host{e.host("a"), e.host("b"), e.host("c"), e.host("d")}
	for round := range e.Rounds {
		winner, g := e.race(hosts, "job")
		if round%4 == 3 { // the next race is for a name that nobody has had
			time.Sleep(e.TTL)
			e.history.Forget("job")
			e.backend.Delete(e.T, "job")
			continue
		}
		winner.free(g)
	}
}

func raceForTheDead(e *env) {
	hosts := []*host{e.host("a"), e.host("b"), e.host("c"), e.host("d")}
	for range (e.Rounds + 9) / 10 {
		e.race(hosts, "job") // whose winner dies
		time.Sleep(e.takeover())
	}
}

// race lets twenty attempts start at once. Exactly one is granted, and all others are told so.
func (e *env) race(hosts []*host, name string) (winner *host, g lease.Grant) {
	e.Helper()
	const racers = 20
	var wg sync.WaitGroup
	start := make(chan struct{})
	grants, errs := make([]lease.Grant, racers), make([]error, racers)
	for i := range racers {
		wg.Go(func() {
			h := hosts[i%len(hosts)]
			<-start
			grants[i], errs[i] = h.store.TryAcquire(e.Context(), h.attempt(name))
		})
	}
	close(start)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			require.ErrorIs(e, err, lease.ErrHeld)
			continue
		}
		require.Nil(e, winner, "two racers were granted the lock")
		winner, g = hosts[i%len(hosts)], grants[i]
	}
	require.NotNil(e, winner, "no racer was granted the lock")
	e.history.Hold(name, winner.name, g.Token, func() bool { return winner.trust(g) > 0 })
	return winner, g
}

func values(e *env) {
	a, b := e.host("a"), e.host("b")
	g := a.take("job")
	value := []byte(strings.Repeat("\x00\xff\"v", lease.MaxValue/4))
	require.Len(e, value, lease.MaxValue)
	saved, err := a.store.Save(e.Context(), g, value)
	require.NoError(e, err)
	require.Equal(e, g.Token, saved.Token)
	require.Equal(e, value, a.inspect("job").Value)

	renewed, err := a.store.Renew(e.Context(), saved)
	require.NoError(e, err)
	a.free(renewed)
	g = b.take("job")
	require.Equal(e, value, g.Value, "the next holder gets the value that was saved")

	e.history.Release("job", g.Token)
	require.NoError(e, b.store.Release(e.Context(), g, lease.Final{Value: []byte("final")}))
	require.Equal(e, "final", string(b.inspect("job").Value))
	g = a.take("job")
	require.Equal(e, "final", string(g.Value), "a release can leave a value behind")
	saved, err = a.store.Save(e.Context(), g, []byte("of the dead"))
	require.NoError(e, err)
	require.LessOrEqual(e, a.trust(saved), e.TTL)
	time.Sleep(e.takeover())
	g = b.take("job")
	require.Equal(e, "of the dead", string(g.Value), "a value survives its holder")

	e.history.Release("job", g.Token)
	require.NoError(e, b.store.Release(e.Context(), g, lease.Final{Value: []byte{}}))
	g = a.take("job")
	require.Empty(e, g.Value, "an empty value removes it")
	a.free(g)
}

func inspectStates(e *env) {
	a, b := e.host("a"), e.host("b")
	require.Equal(e, lease.Absent, b.inspect("job").State)
	require.Zero(e, b.inspect("job").Token)
	g := a.take("job")
	info := b.inspect("job")
	require.Equal(e, lease.Held, info.State)
	require.Equal(e, g.Token, info.Token)
	if !e.Anonymous {
		require.Equal(e, "a", info.Holder)
	}
	time.Sleep(e.takeover())
	info = b.inspect("job")
	require.Equal(e, lease.Dead, info.State)
	require.Equal(e, g.Token, info.Token)

	g = b.take("job")
	b.free(g)
	info = a.inspect("job")
	require.Equal(e, lease.Free, info.State)
	require.Empty(e, info.Holder)
	require.Equal(e, g.Token, info.Token, "the token outlives the release")
	e.backend.Delete(e.T, "job")
	require.Equal(e, lease.Absent, a.inspect("job").State)
}
