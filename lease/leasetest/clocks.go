package leasetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func clockCases() []storeCase {
	return []storeCase{
		{name: "DY05_ContenderCannotTakeTheLiving", virtual: true, run: contenderCannotTakeTheLiving},
		{name: "DY05_ContenderTakesTheDead", virtual: true, run: contenderTakesTheDead},
		{name: "DY05_HoldersOwnClock", virtual: true, run: holdersOwnClock},
		{name: "WallJumpEndsTrust", virtual: true, run: wallJumpEndsTrust},
		{name: "BrokenClocksDoNotKeepTrust", virtual: true, run: brokenClocks},
		{name: "LongHoldWithDrift", virtual: true, run: longHold},
	}
}

const skew = 2 * time.Minute

// disorders are what can be wrong with the clocks of a host while it runs.
var disorders = []struct {
	name string
	do   func(*Clock)
}{
	{"wall fast", func(c *Clock) { c.StepWall(skew) }},
	{"wall slow", func(c *Clock) { c.StepWall(-skew) }},
	{"wall an hour slow", func(c *Clock) { c.StepWall(-time.Hour) }},
	{"wall standing still", func(c *Clock) { c.FreezeWall(true) }},
	{"monotonic standing still", func(c *Clock) { c.FreezeMono(true) }},
	{"both 200 ppm fast", func(c *Clock) { c.Drift(200) }},
	{"both 200 ppm slow", func(c *Clock) { c.Drift(-200) }},
}

// hostAt makes a host whose wall clock was always wrong by offset.
func (e *env) hostAt(name string, offset time.Duration) *host {
	e.Helper()
	h := e.coldHost(name)
	h.clock.StepWall(offset)
	h.inspect("no lock")
	return h
}

// contenderCannotTakeTheLiving is DY-05 a.
func contenderCannotTakeTheLiving(e *env) {
	a := e.host("a")
	l := a.acquire(a.client(), "job")
	contenders := []*host{e.hostAt("always fast", skew), e.hostAt("always slow", -skew)}
	for _, d := range disorders {
		b := e.host("b, " + d.name)
		d.do(b.clock)
		contenders = append(contenders, b)
	}
	for end := time.Now().Add(10 * e.TTL); time.Now().Before(end); time.Sleep(time.Second) {
		for _, b := range contenders {
			_, err := b.store.TryAcquire(e.Context(), b.attempt("job"))
			require.ErrorIs(e, err, lease.ErrHeld, b.name)
			require.Equal(e, lease.Held, b.inspect("job").State, b.name)
		}
		require.NoError(e, l.Err())
	}
	require.NoError(e, l.Release(e.Context()))
}

// contenderTakesTheDead is DY-05 b: within the bound, and not while the dead one may still trust.
func contenderTakesTheDead(e *env) {
	a := e.host("a")
	contend := func(b *host) {
		e.Helper()
		g := a.take("job") // and dies
		next := e.takeWhenDead(b, "job")
		e.history.Hold("job", b.name, next.Token, func() bool { return b.trust(next) > 0 })
		require.Greater(e, next.Token, g.Token)
		b.free(next)
	}
	contend(e.hostAt("always fast", skew))
	contend(e.hostAt("always slow", -skew))
	for _, d := range disorders {
		b := e.host("b, " + d.name)
		d.do(b.clock)
		contend(b)
	}
	for _, d := range disorders { // while it waits
		b := e.host("waiting b, " + d.name)
		time.AfterFunc(e.TTL/2, func() { d.do(b.clock) })
		contend(b)
	}
}

// holdersOwnClock is DY-05 c: the holder is neither lost nor immortal.
func holdersOwnClock(e *env) {
	hold := func(a *host) {
		e.Helper()
		c := a.client()
		l := a.acquire(c, "job")
		time.Sleep(10 * e.TTL)
		require.NoError(e, l.Err(), a.name)
		require.Positive(e, l.Deadline().Sub(a.clock.Now().Wall), a.name)
		a.faults.Add(Rule{Kind: BlackHole})
		a.requireLostInTime(c, l)
		b := e.host("after " + a.name)
		next := e.takeWhenDead(b, "job")
		e.history.Hold("job", b.name, next.Token, func() bool { return b.trust(next) > 0 })
		b.free(next)
	}
	hold(e.hostAt("always fast", skew))
	hold(e.hostAt("always slow", -skew))
	for _, d := range disorders {
		a := e.host("a, " + d.name)
		d.do(a.clock)
		hold(a)
	}
}

// wallJumpEndsTrust is what a machine sees that was suspended: its monotonic clock stood still and its timers with it.
func wallJumpEndsTrust(e *env) {
	a := e.host("a")
	c := a.client()
	told := 0
	requireTold := func() {
		e.Helper()
		told++
		e.eventually(slack, func() bool { return len(a.seen(lease.Lost)) == told }, "the loss was not told")
	}
	for _, jump := range []time.Duration{e.TTL, time.Hour} {
		l := a.acquire(c, "job")
		ctx, cancel := l.Context(e.Context())
		time.Sleep(e.TTL / 4)
		require.NoError(e, l.Err())
		a.clock.FreezeMono(true)
		a.clock.StepWall(jump)
		a.clock.FreezeMono(false)
		require.ErrorIs(e, l.Err(), lease.ErrLost, "the first look after the pause must see it")
		require.ErrorIs(e, l.Save(e.Context(), nil), lease.ErrLost)
		e.await(ctx.Done(), slack, "the end of the lease's context")
		cancel()
		require.ErrorIs(e, l.Release(e.Context()), lease.ErrLost)
		requireTold()

		l = a.acquire(c, "job") // and once more, with nobody who looks
		time.Sleep(e.TTL / 100) // all that keeps the lease is asleep
		a.clock.StepWall(jump)
		e.await(l.Done(), slack, "the loss")
		requireTold()
		require.ErrorIs(e, l.Release(e.Context()), lease.ErrLost, "it is nobody else's and is given back")
	}
}

// brokenClocks go wrong during a partition.
func brokenClocks(e *env) {
	for _, d := range disorders {
		if d.name == "wall fast" {
			continue // ends trust at once: wallJumpEndsTrust
		}
		a := e.host("a, " + d.name)
		c := a.client()
		l := a.acquire(c, d.name)
		a.renewedOnce()
		a.faults.Add(Rule{Kind: BlackHole})
		time.Sleep(e.TTL / 2)
		d.do(a.clock)
		e.Log(d.name)
		a.requireLostInTime(c, l)
		a.requireStaysLost(l, e.TTL)
	}
}

// longHold goes on for hours on a host whose clocks drift as far as clocks do.
func longHold(e *env) {
	for _, ppm := range []float64{200, -200} {
		a, b := e.host("a"), e.host("b")
		a.clock.Drift(ppm)
		b.clock.Drift(-ppm)
		c := a.client()
		l := a.acquire(c, "job")
		for range 12 {
			time.Sleep(5 * time.Minute)
			require.NoError(e, l.Err())
			_, err := b.store.TryAcquire(e.Context(), b.attempt("job"))
			require.ErrorIs(e, err, lease.ErrHeld)
		}
		require.Empty(e, a.seen(lease.RenewFailed))
		require.NoError(e, l.Release(e.Context()))
		b.free(b.take("job"))
	}
}
