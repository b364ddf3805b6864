package servertime_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/cloudlease/cloudlease/internal/servertime"
	"github.com/cloudlease/cloudlease/lease"
)

// world is a service with an exact time and hosts whose clocks drift, stand still and are set.
type world struct {
	t     *rapid.T
	now   time.Time // the service's true time
	hosts []*host
}

// host is one client of the service, with its clocks. At most one of them lies at a time.
type host struct {
	mono  time.Duration
	wall  time.Time
	liar  string
	clock servertime.Clock
	seen  []moment // readings at which the clock's assumption about the host holds
}

// moment is a reading and the truth that goes with it.
type moment struct {
	at    lease.Reading
	truth time.Time
}

var liars = rapid.SampledFrom([]string{"none", "monotonic", "wall"})

// newWorld starts at any fraction of a second, with wall clocks that are wrong by up to ten years.
func newWorld(t *rapid.T, hosts int) *world {
	base := time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)
	w := &world{t: t, now: base.Add(draw(t, "start", 0, 2*time.Second))}
	for range hosts {
		w.hosts = append(w.hosts, &host{
			mono: draw(t, "uptime", 0, 1000*time.Hour),
			wall: w.now.Add(draw(t, "wall offset", -87600*time.Hour, 87600*time.Hour)),
			liar: liars.Draw(t, "liar"),
		})
	}
	return w
}

// pass lets d go by. A truthful clock is off by up to 200 ppm; a lying monotonic clock stands still for any part of d, or runs
// too fast; a lying wall clock is set by seconds or hours.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, h := range w.hosts {
		mono, wall := w.drift(d), w.drift(d)
		switch h.liar {
		case "monotonic":
			mono = d * time.Duration(rapid.IntRange(0, 200).Draw(w.t, "monotonic percent")) / 100
		case "wall":
			wall += w.any("wall step")
			if rapid.Bool().Draw(w.t, "back") {
				wall -= 2 * w.any("wall step back")
			}
		}
		h.mono += mono
		h.wall = h.wall.Add(wall)
	}
}

func (w *world) drift(d time.Duration) time.Duration {
	// The extremes are where a bound breaks.
	ppm := rapid.SampledFrom([]int{-200, -200, -73, 0, 20, 200, 200}).Draw(w.t, "ppm")
	return d + d*time.Duration(ppm)/1_000_000
}

// any gives a duration from nothing to hours, each scale as likely as the others.
func (w *world) any(label string) time.Duration {
	scale := rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, 2 * time.Second, time.Minute, 3 * time.Hour}).
		Draw(w.t, label+" scale")
	return draw(w.t, label, 0, scale)
}

func draw(t *rapid.T, label string, from, to time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(from), int64(to)).Draw(t, label))
}

// read looks at h's clocks and remembers the truth.
func (w *world) read(h *host) lease.Reading {
	at := lease.Reading{Mono: h.mono, Wall: h.wall}
	h.seen = append(h.seen, moment{at: at, truth: w.now})
	return at
}

// request is one in flight.
type request struct {
	sent, received lease.Reading
	date           time.Time
}

// exchange sends a request and receives its answer; date makes the Date header out of the true time at some instant between.
func (w *world) exchange(h *host, date func(time.Time) time.Time) request {
	r := request{sent: w.read(h)}
	w.pass(w.any("request delay"))
	r.date = date(w.now)
	w.pass(w.any("answer delay"))
	r.received = w.read(h)
	return r
}

// forget drops the moments before the newest answer but the last, and lets the other clock of h lie from now on: the clock
// assumes one truthful clock per span between answers, not the same one for ever.
func (w *world) forget(h *host) {
	h.seen = h.seen[len(h.seen)-1:]
	h.liar = liars.Draw(w.t, "liar")
}

// check fails unless the truth lies in h's interval widened by slack, at every moment remembered.
func (w *world) check(h *host, slack time.Duration) {
	for i, m := range h.seen {
		earliest, latest, ok := h.clock.Interval(m.at)
		if !ok {
			w.t.Fatalf("moment %d: nothing known after an answer", i)
		}
		if m.truth.Before(earliest.Add(-slack)) || m.truth.After(latest.Add(slack)) {
			w.t.Fatalf("moment %d of %d: true time %v lies outside [%v, %v] widened by %v", i, len(h.seen), m.truth, earliest, latest, slack)
		}
	}
}

// truncated is what a correct front end sends.
func truncated(t time.Time) time.Time { return t.Truncate(time.Second) }
