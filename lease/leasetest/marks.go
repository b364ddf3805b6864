package leasetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func markCases() []storeCase {
	return []storeCase{
		{name: "MarksDecideOnTheGrant", run: marksDecide},
		{name: "MarksAreKept", run: marksAreKept},
		{name: "MarksTooFarAhead", run: marksTooFarAhead},
		{name: "MarksOfAClient", run: marksOfAClient},
		{name: "ReleaseIsRecognizedByItsMarks", run: releaseRecognizedByMarks},
	}
}

// marked is an attempt of the host for an occurrence.
func (h *host) marked(name string, occurrence int64, atMostOnce bool) lease.Request {
	r := h.attempt(name)
	r.Mark = &lease.Mark{Occurrence: occurrence, AtMostOnce: atMostOnce}
	return r
}

// start acquires name for an occurrence, which must be granted.
func (h *host) start(name string, occurrence int64) lease.Grant {
	h.e.Helper()
	r := h.marked(name, occurrence, false)
	g, err := h.store.TryAcquire(h.e.Context(), r)
	require.NoError(h.e, err)
	h.e.sane(r, g)
	require.Equal(h.e, occurrence, g.Marks.Running)
	h.e.history.Hold(name, h.name, g.Token, func() bool { return h.trust(g) > 0 })
	return g
}

// finish releases g as done.
func (h *host) finish(g lease.Grant) {
	h.e.Helper()
	h.e.history.Release(g.Name, g.Token)
	m := lease.Marks{Started: g.Marks.Started, Finished: g.Marks.Running}
	require.NoError(h.e, h.store.Release(h.e.Context(), g, lease.Final{Marks: &m}))
}

// marksDecide tries every condition on a job in every situation. In each the newest occurrence but one was finished.
func marksDecide(e *env) {
	a, b := e.host("a"), e.host("b")
	if !a.store.Limits().Marks {
		e.Log("the store keeps no marks")
		return
	}
	const older, prev, cur, next = -120, -60, 0, 60 // seconds from the newest occurrence that was started
	type answers map[int64]string
	start := func(name string, now int64) { a.start(name, now) }
	for _, c := range []struct {
		situation   string
		bring       func(name string, now int64)
		wait        time.Duration
		atLeastOnce answers
		atMostOnce  answers
	}{
		{
			"finished", func(name string, now int64) { a.finish(a.start(name, now)) }, 0,
			answers{older: isPassed, prev: isPassed, cur: isPassed, next: isGranted},
			answers{older: isPassed, prev: isPassed, cur: isPassed, next: isGranted},
		},
		{
			"failed", func(name string, now int64) { a.free(a.start(name, now)) }, 0,
			answers{older: isPassed, prev: isPassed, cur: isGranted, next: isGranted},
			answers{older: isPassed, prev: isPassed, cur: isPassed, next: isGranted},
		},
		{
			"running", start, 0,
			answers{older: isPassed, prev: isPassed, cur: isHeld, next: isHeld},
			answers{older: isPassed, prev: isPassed, cur: isHeld, next: isHeld},
		},
		{
			"dead", start, e.takeover(),
			answers{older: isPassed, prev: isPassed, cur: isGranted, next: isGranted},
			answers{older: isPassed, prev: isPassed, cur: isPassed, next: isGranted},
		},
		{
			"held for no occurrence", func(name string, now int64) { a.finish(a.start(name, now)); a.take(name) }, 0,
			answers{older: isPassed, prev: isPassed, cur: isPassed, next: isHeld},
			answers{older: isPassed, prev: isPassed, cur: isPassed, next: isHeld},
		},
	} {
		now := time.Now().Unix() - 60 // so that the next occurrence does not lie ahead
		each := func(f func(name string, occurrence int64, atMostOnce bool, want string)) {
			for _, atMostOnce := range []bool{false, true} {
				want := c.atLeastOnce
				if atMostOnce {
					want = c.atMostOnce
				}
				for offset, answer := range want {
					f(fmt.Sprintf("%s, at most once: %v, %+ds", c.situation, atMostOnce, offset), now+offset, atMostOnce, answer)
				}
			}
		}
		each(func(name string, _ int64, _ bool, _ string) {
			a.finish(a.start(name, now+prev))
			c.bring(name, now)
		})
		time.Sleep(c.wait)
		each(func(name string, occurrence int64, atMostOnce bool, want string) {
			e.tryMark(b, name, occurrence, atMostOnce, want)
		})
	}
}

// The answers to an attempt for an occurrence.
const (
	isGranted = "granted"
	isHeld    = "held"
	isPassed  = "passed"
)

// tryMark makes one attempt for an occurrence and checks its answer.
func (e *env) tryMark(h *host, name string, occurrence int64, atMostOnce bool, want string) {
	e.Helper()
	before := h.inspect(name)
	g, err := h.store.TryAcquire(e.Context(), h.marked(name, occurrence, atMostOnce))
	switch want {
	case isGranted:
		require.NoError(e, err, name)
		require.Greater(e, g.Token, before.Token)
		require.Equal(e, lease.Marks{
			Started: max(before.Marks.Started, occurrence), Finished: before.Marks.Finished, Running: occurrence,
		}, g.Marks, name)
		require.Equal(e, g.Marks, h.inspect(name).Marks, name)
		return
	case isHeld:
		require.ErrorIs(e, err, lease.ErrHeld, name)
		h, ok := errors.AsType[*lease.HeldError](err)
		require.True(e, ok)
		require.Equal(e, before.Marks, h.Marks, "%s: a refusal tells the marks", name)
	case isPassed:
		require.ErrorIs(e, err, lease.ErrPassed, name)
		p, ok := errors.AsType[*lease.PassedError](err)
		require.True(e, ok)
		require.Equal(e, before.Marks, p.Marks, "%s: a refusal tells the marks", name)
		require.Equal(e, occurrence, p.Occurrence)
		require.Equal(e, name, p.Name)
		require.Equal(e, before.Token, p.Token, name)
		require.Equal(e, string(before.Value), string(p.Value), name)
	}
	require.Equal(e, before, h.inspect(name), "%s: a refused attempt changed the lock", name)
}

// marksAreKept by everything that does not set them.
func marksAreKept(e *env) {
	a, b := e.host("a"), e.host("b")
	if !a.store.Limits().Marks {
		e.Log("the store keeps no marks")
		return
	}
	now := time.Now().Unix()
	a.finish(a.start("job", now-60))
	a.free(a.start("job", now))
	require.Equal(e, lease.Marks{Started: now, Finished: now - 60}, b.inspect("job").Marks, "it failed: nothing runs")
	g := a.start("job", now)
	want := lease.Marks{Started: now, Finished: now - 60, Running: now}
	require.Equal(e, want, g.Marks)
	g, err := a.store.Renew(e.Context(), g)
	require.NoError(e, err)
	g, err = a.store.Save(e.Context(), g, []byte("half done"))
	require.NoError(e, err)
	require.Equal(e, want, b.inspect("job").Marks)
	require.Equal(e, want, g.Marks)

	time.Sleep(e.takeover()) // it was killed
	require.Equal(e, want, b.inspect("job").Marks, "marks survive their holder")
	plain := b.take("job") // for no occurrence
	want.Running = 0
	require.Equal(e, want, plain.Marks)
	require.Equal(e, want, a.inspect("job").Marks)
	b.free(plain)
	require.Equal(e, want, a.inspect("job").Marks, "a release without marks keeps them")

	g = a.start("job", now-30) // older than what was started, newer than what was finished
	want.Running = now - 30
	require.Equal(e, want, g.Marks, "the newest start does not go back")
	e.history.Release("job", g.Token)
	final := lease.Marks{Started: now, Finished: now - 30}
	require.NoError(e, a.store.Release(e.Context(), g, lease.Final{Value: []byte("done"), Marks: &final}))
	info := b.inspect("job")
	require.Equal(e, final, info.Marks)
	require.Equal(e, "done", string(info.Value), "value and marks are left behind in one write")
	_, err = b.store.TryAcquire(e.Context(), b.marked("job", now-30, false))
	p, ok := errors.AsType[*lease.PassedError](err)
	require.True(e, ok, "%v", err)
	require.Equal(e, "done", string(p.Value))
}

// marksTooFarAhead would block every earlier occurrence for ever.
func marksTooFarAhead(e *env) {
	a := e.host("a")
	if !a.store.Limits().Marks {
		e.Log("the store keeps no marks")
		return
	}
	a.finish(a.start("job", time.Now().Unix()-60))
	want := a.inspect("job")
	for _, ahead := range []time.Duration{lease.MaxAhead + 10*time.Second, time.Hour, 1000 * 24 * time.Hour} {
		for _, atMostOnce := range []bool{false, true} {
			for _, name := range []string{"job", "another job"} {
				_, err := a.store.TryAcquire(e.Context(), a.marked(name, time.Now().Add(ahead).Unix(), atMostOnce))
				require.ErrorIs(e, err, lease.ErrInvalid, "%v ahead", ahead)
			}
		}
	}
	require.Equal(e, want, a.inspect("job"))
	require.Equal(e, lease.Absent, a.inspect("another job").State)
	a.finish(a.start("job", time.Now().Add(lease.MaxAhead-10*time.Second).Unix()))
}

func marksOfAClient(e *env) {
	a, b := e.host("a"), e.host("b")
	if !a.store.Limits().Marks {
		e.Log("the store keeps no marks")
		return
	}
	ca, cb := a.client(), b.client()
	now := time.Now().Unix()
	sent := len(a.faults.Calls(""))
	_, err := ca.TryAcquireMark(e.Context(), "job", lease.Mark{Occurrence: 0})
	require.ErrorIs(e, err, lease.ErrInvalid)
	require.Len(e, a.faults.Calls(""), sent)
	l, err := ca.TryAcquireMark(e.Context(), "job", lease.Mark{Occurrence: now})
	require.NoError(e, err)
	e.history.Watch(l)
	require.Equal(e, lease.Marks{Started: now, Running: now}, l.Marks())
	time.Sleep(e.TTL)
	_, err = cb.TryAcquireMark(e.Context(), "job", lease.Mark{Occurrence: now})
	require.ErrorIs(e, err, lease.ErrHeld)
	done := lease.Marks{Started: now, Finished: now}
	require.NoError(e, l.ReleaseWith(e.Context(), lease.Final{Marks: &done}))
	_, err = cb.TryAcquireMark(e.Context(), "job", lease.Mark{Occurrence: now})
	require.ErrorIs(e, err, lease.ErrPassed)
	require.NotErrorIs(e, err, lease.ErrHeld)
}

// releaseRecognizedByMarks tells a release that was stored from one that was not, also when another has the lock.
func releaseRecognizedByMarks(e *env) {
	a, b := e.host("a"), e.host("b")
	if !a.store.Limits().Marks {
		e.Log("the store keeps no marks")
		return
	}
	now := time.Now().Unix() - 60
	for i, loss := range []Rule{{Kind: DropAnswer}, {Kind: DropRequest}} {
		name := fmt.Sprint("job", i)
		g := a.start(name, now)
		done := lease.Final{Value: []byte("by a"), Marks: &lease.Marks{Started: now, Finished: now}}
		loss.Op = "release"
		lost := a.faults.Add(loss)
		err := a.store.Release(e.Context(), g, done)
		lost.Stop()
		require.True(e, transient(err), "%v", err)
		e.history.Release(name, g.Token)
		stored := loss.Kind == DropAnswer
		occurrence := now + 60
		if !stored {
			time.Sleep(e.takeover())
			occurrence = now // AtLeastOnce: it runs again
		}
		next := b.start(name, occurrence)
		want := b.inspect(name)
		err = a.store.Release(e.Context(), g, done)
		if stored {
			require.NoError(e, err, "it was stored: the marks say so")
		} else {
			require.ErrorIs(e, err, lease.ErrLost, "it was never stored")
		}
		require.Equal(e, want, b.inspect(name), "the next holder was touched")
		b.finish(next)
	}
}
