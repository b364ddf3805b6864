package lease

import "time"

// Reading is one look at both clocks of this host. The monotonic clock can stand still while a virtual machine is
// suspended or a serverless runtime is frozen; the wall clock can be set. Neither is trusted alone.
type Reading struct {
	Mono time.Duration // monotonic, from an arbitrary start
	Wall time.Time     // wall clock, without a monotonic part
}

// Fast is the longer of the two times that passed between since and r. Trust is measured with it.
func (r Reading) Fast(since Reading) time.Duration {
	return max(r.Mono-since.Mono, r.Wall.Sub(since.Wall))
}

// Slow is the shorter of the two times that passed between since and r. Whoever waits for another's lease to end uses it.
func (r Reading) Slow(since Reading) time.Duration {
	return min(r.Mono-since.Mono, r.Wall.Sub(since.Wall))
}

// IsZero tells whether r was never taken.
func (r Reading) IsZero() bool { return r.Mono == 0 && r.Wall.IsZero() }

// Clock reads both clocks at once. It is safe for concurrent use.
type Clock func() Reading

// started anchors the monotonic readings of SystemClock.
var started = time.Now()

// SystemClock reads the clocks of this host.
func SystemClock() Reading {
	now := time.Now()
	return Reading{Mono: now.Sub(started), Wall: now.Round(0)}
}

// Clocked is implemented by stores that were given a clock. A client measures trust with its store's clock, so that the
// instants in a Grant and the instants the client reads come from one source.
type Clocked interface {
	Clock() Clock
}

// clockOf is the clock of s, or the system's.
func clockOf(s Store) Clock {
	if c, ok := s.(Clocked); ok && c.Clock() != nil {
		return c.Clock()
	}
	return SystemClock
}
