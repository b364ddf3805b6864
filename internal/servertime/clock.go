package servertime

import (
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

const (
	// Skew is how far the front ends of one service may differ. Users of a Clock add it when they decide that somebody
	// else's lease is dead.
	Skew = time.Second

	// MaxWidth is the widest interval that the protocols write with. A client whose interval is wider reads first.
	MaxWidth = 3 * time.Second

	// cut is what a Date header leaves out: it counts whole seconds.
	cut = time.Second

	// driftPart is the share of an elapsed time by which it may be wrong: a clock that is off by 200 ppm shows between
	// 4999/5000 and 5001/5000 of the true time, so the true time is at most 1/4999 of the shown time away from it.
	driftPart = 4999

	// forever bounds elapsed times, so that arithmetic on a wall clock set by centuries does not overflow.
	forever time.Duration = 1 << 62

	// Dates from other years are garbage, not somebody's time.
	firstYear, lastYear = 2000, 2199
)

// Clock is the interval clock of one service. The zero value is ready for use and knows nothing. All methods are safe for
// concurrent use, never block for long and make no request.
type Clock struct {
	mu    sync.Mutex
	known bounds
}

// Observe takes in the Date header of an answer: sent was read before its request was sent (before the first try, if the
// request was retried underneath), received after the answer had come. Failures carry a Date too and are as good.
// A date, or a pair of readings, that cannot be right is ignored.
//
// The result is true if date contradicts what was known, which the caller should log. The clock then has started anew from
// the newer of the two. Answers may be reported in any order.
func (c *Clock) Observe(sent, received lease.Reading, date time.Time) (restarted bool) {
	if !plausible(sent, received, date) {
		return false
	}
	date = date.UTC().Round(0)
	_, most := span(sent, received)
	newest := bounds{at: received, earliest: date, latest: date.Add(cut + most)}

	c.mu.Lock()
	defer c.mu.Unlock()
	older := c.known
	if older.at.IsZero() {
		c.known = newest
		return false
	}
	if newest.at.Mono < older.at.Mono {
		newest, older = older, newest
	}
	// Carrying the bounds along at every answer, instead of keeping the instants that gave them, keeps the spans short in
	// which one of the two clocks must be right.
	both, ok := newest.intersect(older.carry(newest.at))
	if !ok {
		both = newest
	}
	c.known = both
	return !ok
}

// Interval gives the bounds of the service's time at the instant of a reading of this host's clocks, which may lie before
// the newest answer. The bounds are whole milliseconds, rounded outward, in UTC. Without any answer ok is false.
func (c *Clock) Interval(at lease.Reading) (earliest, latest time.Time, ok bool) {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if known.at.IsZero() {
		return time.Time{}, time.Time{}, false
	}
	b := known.carry(at)
	return b.earliest.Truncate(time.Millisecond), roundUp(b.latest), true
}

// Earliest is the lower bound of Interval: the service's time at that instant was not before it.
func (c *Clock) Earliest(at lease.Reading) (time.Time, bool) {
	earliest, _, ok := c.Interval(at)
	return earliest, ok
}

// Latest is the upper bound of Interval: the service's time at that instant was not after it.
func (c *Clock) Latest(at lease.Reading) (time.Time, bool) {
	_, latest, ok := c.Interval(at)
	return latest, ok
}

// Known tells whether there is an interval at that instant and it is not wider than width, such as MaxWidth.
func (c *Clock) Known(at lease.Reading, width time.Duration) bool {
	earliest, latest, ok := c.Interval(at)
	return ok && latest.Sub(earliest) <= width
}

// bounds say that the service's time at one instant was neither before earliest nor after latest.
type bounds struct {
	at               lease.Reading
	earliest, latest time.Time
}

// carry gives the bounds that b proves for another instant, after or before its own.
func (b bounds) carry(to lease.Reading) bounds {
	least, most := span(b.at, to)
	return bounds{at: to, earliest: b.earliest.Add(least), latest: b.latest.Add(most)}
}

// intersect gives the bounds that b and o, which are of the same instant, prove together. They contradict each other if
// ok is false.
func (b bounds) intersect(o bounds) (both bounds, ok bool) {
	if o.earliest.After(b.earliest) {
		b.earliest = o.earliest
	}
	if o.latest.Before(b.latest) {
		b.latest = o.latest
	}
	return b, !b.latest.Before(b.earliest)
}

// span bounds the true time from since to at. Both are negative if at is the earlier instant: then Slow is the clock that
// shows the longer way back. If one clock was set back in between they have different signs, and no order is presumed.
func span(since, at lease.Reading) (least, most time.Duration) {
	least = max(at.Slow(since), -forever)
	most = min(at.Fast(since), forever)
	return least - drift(least), most + drift(most)
}

// drift is how far the true time may be from d on a clock that runs within 200 ppm, rounded up.
func drift(d time.Duration) time.Duration {
	return max(d, -d)/driftPart + 1
}

func plausible(sent, received lease.Reading, date time.Time) bool {
	year := date.UTC().Year()
	return year >= firstYear && year <= lastYear &&
		!sent.IsZero() && !received.IsZero() && received.Mono >= sent.Mono
}

func roundUp(t time.Time) time.Time {
	return t.Add(time.Millisecond - 1).Truncate(time.Millisecond)
}
