package leasetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

func pauseCases() []storeCase {
	return []storeCase{
		{name: "PP01_PausedBetweenCheckAndWrite", run: pausedBeforeWrite},
		{name: "PP01_WriteOnTheWire", run: writeOnTheWire},
		{name: "PP01_PausedBetweenReadAndWrite", run: pausedBetweenReadAndWrite},
		{name: "GE02_ClientStaleRelease", run: clientStaleRelease},
	}
}

// guard is the backend's guard as the host sees it, or one in memory.
func (h *host) guard() fence.Guard {
	h.e.Helper()
	var g fence.Guard = plainGuard{faults: h.faults, data: h.e.guarded}
	if b, ok := h.e.backend.(Guarded); ok {
		g = b.Guard(h.e.T, Host{Name: h.name, Clock: h.clock.Now, Faults: h.faults})
	}
	return h.e.history.Guard(AnnotateGuard(g))
}

// overtaken has a hold name and pass its own check, then pauses it until b has taken over. During the pause a does nothing:
// its renewals are not sent. What a would do between check and pause is before.
func (e *env) overtaken(a, b *host, ca, cb *lease.Client, name string, before func(*lease.Lease)) (old, next *lease.Lease) {
	e.Helper()
	old = a.acquire(ca, name)
	paused := a.faults.Add(Rule{Kind: BlackHole, Op: "renew"})
	time.Sleep(e.TTL / 2)
	require.NoError(e, old.Err(), "the check before the write")
	if before != nil {
		before(old)
	}
	e.eventually(e.takeover(), func() bool {
		var err error
		next, err = cb.TryAcquire(e.Context(), name)
		return err == nil
	}, "nobody could take over")
	e.history.Watch(next)
	paused.Stop()
	return old, next
}

// requireOvertaken wants the write of the former holder refused and the next holder's value kept.
func (e *env) requireOvertaken(b *host, old, next *lease.Lease, write error, key string) {
	e.Helper()
	requireStale(e, write, key, old.Token())
	have, err := b.guard().Get(e.Context(), key)
	require.NoError(e, err)
	require.Equal(e, fence.Entry{Value: []byte("of b"), Token: next.Token(), Holder: next.Holder()}, have)
	require.ErrorIs(e, old.Err(), lease.ErrLost)
	require.ErrorIs(e, old.Release(e.Context()), lease.ErrLost)
	require.NoError(e, next.Err())
	require.NoError(e, next.Release(e.Context()))
}

func pausedBeforeWrite(e *env) {
	a, b := e.host("a"), e.host("b")
	ca, cb, ga, gb := a.client(), b.client(), a.guard(), b.guard()
	for round := range e.Rounds {
		key := fmt.Sprint("k", round)
		old, next := e.overtaken(a, b, ca, cb, "job", nil)
		require.NoError(e, fence.Put(e.Context(), gb, next, key, []byte("of b")))
		err := fence.Put(e.Context(), ga, old, key, []byte("of a")) // without another check
		e.requireOvertaken(b, old, next, err, key)
	}
}

// writeOnTheWire is sent while the lease is good, and arrives when the next holder has written: only a check in the same
// atomic step as the write can refuse it.
func writeOnTheWire(e *env) {
	a, b := e.host("a"), e.host("b")
	ca, cb, ga, gb := a.client(), b.client(), a.guard(), b.guard()
	for round := range (e.Rounds + 9) / 10 {
		key := fmt.Sprint("k", round)
		slow := a.faults.Add(Rule{Kind: DelayBefore, Op: "put", Nth: 1, Delay: e.takeover() + e.TTL})
		write := make(chan error, 1)
		old, next := e.overtaken(a, b, ca, cb, "job", func(old *lease.Lease) {
			go func() { write <- fence.Put(e.Context(), ga, old, key, []byte("of a")) }()
		})
		require.Equal(e, 1, slow.Fired())
		require.NoError(e, fence.Put(e.Context(), gb, next, key, []byte("of b")))
		e.requireOvertaken(b, old, next, <-write, key)
		slow.Stop()
	}
}

func pausedBetweenReadAndWrite(e *env) {
	a, b := e.host("a"), e.host("b")
	ca, cb, ga, gb := a.client(), b.client(), a.guard(), b.guard()
	for round := range (e.Rounds + 9) / 10 {
		key := fmt.Sprint("k", round)
		var read fence.Entry
		old, next := e.overtaken(a, b, ca, cb, "job", func(old *lease.Lease) {
			require.NoError(e, fence.Put(e.Context(), ga, old, key, []byte("of a")))
			var err error
			read, err = ga.Get(e.Context(), key)
			require.NoError(e, err)
		})
		require.NoError(e, fence.Put(e.Context(), gb, next, key, []byte("of b")))
		err := fence.Put(e.Context(), ga, old, key, append(read.Value, '+'))
		e.requireOvertaken(b, old, next, err, key)
	}
}

// clientStaleRelease is GE-02 a through the client: a deferred release runs when another holds the lock.
func clientStaleRelease(e *env) {
	a, b := e.host("a"), e.host("b")
	old, next := e.overtaken(a, b, a.client(), b.client(), "job", nil)
	want := b.inspect("job")
	require.ErrorIs(e, old.Release(e.Context()), lease.ErrLost)
	require.Equal(e, want.Token, b.inspect("job").Token)
	require.Equal(e, lease.Held, b.inspect("job").State)
	time.Sleep(e.TTL)
	require.NoError(e, next.Err())
	require.NoError(e, next.Release(e.Context()))
}
