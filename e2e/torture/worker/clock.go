//go:build unix

package worker

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
	"github.com/cloudlease/cloudlease/lease"
)

// remembered is how many readings can be traced back to the instant at which they were taken. A lease is renewed several times
// while so many are taken.
const remembered = 8192

// Clock is a host's pair of clocks that can be set wrong, and remembers the true instants of its readings. It is safe for
// concurrent use.
type Clock struct {
	mu      sync.Mutex
	at      time.Duration // the true instant of reading
	reading lease.Reading
	rate    float64
	frozen  bool

	ring  []lease.Reading
	next  int
	taken map[lease.Reading]time.Duration
}

// NewClock makes a pair of clocks that are right.
func NewClock() *Clock {
	return &Clock{
		at: history.Now(), reading: lease.Reading{Mono: time.Hour, Wall: time.Now().Round(0)}, rate: 1,
		ring: make([]lease.Reading, remembered), taken: map[lease.Reading]time.Duration{},
	}
}

// Now is a lease.Clock.
func (c *Clock) Now() lease.Reading {
	r, _ := c.Read()
	return r
}

// Read reads both clocks, and the true instant.
func (c *Clock) Read() (lease.Reading, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updateLocked()
	if _, known := c.taken[c.reading]; !known {
		delete(c.taken, c.ring[c.next])
		c.ring[c.next], c.next = c.reading, (c.next+1)%remembered
		c.taken[c.reading] = c.at
	}
	return c.reading, c.at
}

// TrueOf is the true instant at which r was taken.
func (c *Clock) TrueOf(r lease.Reading) (at time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok = c.taken[r]
	return at, ok
}

func (c *Clock) updateLocked() {
	now := history.Now()
	passed := time.Duration(float64(now-c.at) * c.rate)
	c.at = now
	if !c.frozen {
		c.reading.Mono += passed
	}
	c.reading.Wall = c.reading.Wall.Add(passed)
}

// Set does what a command says: "wall 3s" sets the wall clock forward (or back, with a minus), "mono freeze" and "mono run"
// stop the monotonic clock as in a suspended machine, "drift 150" makes both clocks gain so many millionths.
func (c *Clock) Set(command string) error {
	what, arg, _ := strings.Cut(command, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updateLocked()
	switch {
	case what == "wall":
		d, err := time.ParseDuration(arg)
		if err != nil {
			return fmt.Errorf("set the wall clock: %w", err)
		}
		c.reading.Wall = c.reading.Wall.Add(d)
	case what == "mono" && (arg == "freeze" || arg == "run"):
		c.frozen = arg == "freeze"
	case what == "drift":
		var ppm float64
		if _, err := fmt.Sscan(arg, &ppm); err != nil {
			return fmt.Errorf("set the drift: %w", err)
		}
		c.rate = 1 + ppm/1e6
	default:
		return fmt.Errorf("%q is no command for a clock", command)
	}
	return nil
}
