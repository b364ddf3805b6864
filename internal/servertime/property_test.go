package servertime_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/cloudlease/cloudlease/internal/servertime"
	"github.com/cloudlease/cloudlease/lease"
)

func TestTruthLiesInTheInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 1)
		h := w.hosts[0]
		for range rapid.IntRange(1, 12).Draw(t, "answers") {
			for range rapid.IntRange(0, 3).Draw(t, "idle readings") {
				w.read(h)
				w.pass(w.any("idle"))
			}
			r := w.exchange(h, truncated)
			require.False(t, h.clock.Observe(r.sent, r.received, r.date), "an exact service contradicts nothing")
			w.check(h, 0) // among them instants before the newest answer
			w.forget(h)
			w.pass(w.any("rest"))
			w.read(h)
			w.check(h, 0)
		}
	})
}

// Answers overlap and are reported in any order, and every instant ever seen is asked about; one clock lies all the time.
func TestTruthLiesInTheIntervalWhenAnswersOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 1)
		h := w.hosts[0]
		var flying []request // sent; date still zero: not yet served
		var arrived []request
		reported := false
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 4).Draw(t, "step"); {
			case step == 0:
				flying = append(flying, request{sent: w.read(h)})
			case step == 1 && len(flying) > 0:
				flying[rapid.IntRange(0, len(flying)-1).Draw(t, "served")].date = truncated(w.now)
			case step == 2 && len(flying) > 0:
				i := rapid.IntRange(0, len(flying)-1).Draw(t, "arriving")
				if r := flying[i]; !r.date.IsZero() {
					r.received = w.read(h)
					arrived = append(arrived, r)
					flying = slices.Delete(flying, i, i+1)
				}
			case step == 3 && len(arrived) > 0:
				i := rapid.IntRange(0, len(arrived)-1).Draw(t, "reported")
				r := arrived[i]
				arrived = slices.Delete(arrived, i, i+1)
				require.False(t, h.clock.Observe(r.sent, r.received, r.date), "an exact service contradicts nothing")
				reported = true
			default:
				w.pass(w.any("rest"))
				w.read(h)
			}
			if reported {
				w.check(h, 0)
			}
		}
	})
}

// frontEnd draws how one front end makes its Date header, such that it is off by up to Skew.
func frontEnd(t *rapid.T) func(time.Time) time.Time {
	switch rapid.SampledFrom([]string{"cut", "nearest", "up"}).Draw(t, "rounding") {
	case "nearest":
		return func(now time.Time) time.Time { return now.Round(time.Second) }
	case "up":
		return func(now time.Time) time.Time { return now.Add(time.Second - 1).Truncate(time.Second) }
	}
	off := rapid.SampledFrom([]time.Duration{-servertime.Skew, -300 * time.Millisecond, 0, servertime.Skew}).Draw(t, "off")
	return func(now time.Time) time.Time { return truncated(now.Add(off)) }
}

func TestTruthLiesWithinSkewWhenFrontEndsDiffer(t *testing.T) {
	restarts := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 1)
		h := w.hosts[0]
		ends := []func(time.Time) time.Time{frontEnd(t), frontEnd(t)}
		for range rapid.IntRange(1, 12).Draw(t, "answers") {
			r := w.exchange(h, rapid.SampledFrom(ends).Draw(t, "front end"))
			if h.clock.Observe(r.sent, r.received, r.date) {
				restarts++
			}
			w.check(h, servertime.Skew)
			w.forget(h)
			w.pass(w.any("rest"))
			w.read(h)
			w.check(h, servertime.Skew)
		}
	})
	require.Positive(t, restarts, "no run had a contradiction, so restarts were not tested")
}

// This is what the protocol needs: who waits until earliest > expires + Skew finds that the holder, who trusts its lease until
// latest >= expires, has stopped, whichever front ends answered the two.
func TestTwoClientsAgreeWithinSkew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 2)
		base := draw(t, "service offset", -time.Hour, time.Hour)
		date := func(now time.Time) time.Time {
			off := rapid.SampledFrom([]time.Duration{0, 0, servertime.Skew / 2, servertime.Skew, servertime.Skew}).Draw(t, "off")
			return truncated(now.Add(base + off))
		}
		answered := make([]bool, len(w.hosts))
		for range rapid.IntRange(2, 16).Draw(t, "answers") {
			i := rapid.IntRange(0, 1).Draw(t, "client")
			h := w.hosts[i]
			r := w.exchange(h, date)
			h.clock.Observe(r.sent, r.received, r.date)
			answered[i] = true
			w.forget(h)
			w.pass(w.any("rest"))
			if !answered[0] || !answered[1] {
				continue
			}
			a, b := w.hosts[0], w.hosts[1]
			earliestA, latestA, _ := a.clock.Interval(w.read(a))
			earliestB, latestB, _ := b.clock.Interval(w.read(b))
			require.False(t, earliestA.After(latestB.Add(servertime.Skew)), "client A is ahead: %v, %v", earliestA, latestB)
			require.False(t, earliestB.After(latestA.Add(servertime.Skew)), "client B is ahead: %v, %v", earliestB, latestA)
		}
	})
}

// A clock that knows little passes the other properties, so this one bounds its width: by the round trip and the second that a
// Date leaves out, and by the time between two requests on either side of a tick.
func TestIntervalNarrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const rounding = 2*time.Millisecond + 10
		w := newWorld(t, 1)
		h := w.hosts[0]
		h.liar = "none"
		ask := func(trip time.Duration, before time.Duration) request {
			r := request{sent: w.read(h)}
			w.pass(before)
			r.date = truncated(w.now)
			w.pass(trip - before)
			r.received = w.read(h)
			return r
		}
		trip := draw(t, "round trip", time.Millisecond, 400*time.Millisecond)
		far := draw(t, "request delay", 0, trip)

		r := ask(trip, far)
		h.clock.Observe(r.sent, r.received, r.date)
		require.LessOrEqual(t, width(t, &h.clock, r.received), time.Second+slow(trip)+rounding, "after one answer")
		w.pass(w.any("rest"))

		// One answer is made just before a tick of the service's clock and one just after it.
		w.pass(w.now.Truncate(time.Second).Add(2*time.Second - far - 1).Sub(w.now))
		first := ask(trip, far)
		h.clock.Observe(first.sent, first.received, first.date)
		w.pass(draw(t, "pause", 1, 10*time.Millisecond))
		second := ask(trip, far)
		h.clock.Observe(second.sent, second.received, second.date)
		require.Equal(t, time.Second, second.date.Sub(first.date), "the two answers straddle a tick")
		apart := second.received.Fast(first.sent)
		require.LessOrEqual(t, width(t, &h.clock, second.received), slow(apart)+rounding, "after a tick")
		w.check(h, 0)

		// Age widens it again, by the drift of both clocks and no more.
		before := width(t, &h.clock, second.received)
		age := w.any("age")
		w.pass(age)
		require.LessOrEqual(t, width(t, &h.clock, w.read(h)), before+age/1000+rounding, "after %v", age)
	})
}

// slow is d with twice the drift that two clocks may differ by, and a little.
func slow(d time.Duration) time.Duration { return d + d/1000 }

func width(t require.TestingT, c *servertime.Clock, at lease.Reading) time.Duration {
	earliest, latest, ok := c.Interval(at)
	require.True(t, ok)
	return latest.Sub(earliest)
}
