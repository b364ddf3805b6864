package leasetest

import (
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Clock is a host's pair of clocks, which a test can set wrong. It runs with the process's time, virtual inside a
// testing/synctest bubble, until told otherwise. It is safe for concurrent use.
type Clock struct {
	mu         sync.Mutex
	at         time.Time // of the process, when the readings below were brought up to date
	reading    lease.Reading
	rate       float64
	monoFrozen bool
	wallFrozen bool
}

// NewClock makes a pair of clocks that are right.
func NewClock() *Clock {
	now := time.Now()
	return &Clock{at: now, reading: lease.Reading{Mono: time.Hour, Wall: now.Round(0)}, rate: 1}
}

// Now reads both clocks: a lease.Clock.
func (c *Clock) Now() lease.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.update()
}

// StepWall sets the wall clock forward by d, or back.
func (c *Clock) StepWall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.update()
	c.reading.Wall = c.reading.Wall.Add(d)
}

// FreezeMono stops the monotonic clock, as while a virtual machine is suspended, or lets it go on.
func (c *Clock) FreezeMono(frozen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.update()
	c.monoFrozen = frozen
}

// FreezeWall stops the wall clock, or lets it go on.
func (c *Clock) FreezeWall(frozen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.update()
	c.wallFrozen = frozen
}

// Drift makes both clocks gain ppm millionths from now on, or lose them.
func (c *Clock) Drift(ppm float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.update()
	c.rate = 1 + ppm/1e6
}

func (c *Clock) update() lease.Reading {
	now := time.Now()
	passed := time.Duration(float64(now.Sub(c.at)) * c.rate)
	c.at = now
	if !c.monoFrozen {
		c.reading.Mono += passed
	}
	if !c.wallFrozen {
		c.reading.Wall = c.reading.Wall.Add(passed)
	}
	return c.reading
}
