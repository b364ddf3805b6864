package lease

import (
	"context"
	"errors"
	"time"
)

// Close releases the client's leases, ends its waits with ErrClosed, waits for what it gives back in the background, and
// closes the store. ctx bounds the waiting; requests that are under way then go on, each for Options.CallTimeout at most. A
// client made by With leaves the store and the other clients' leases alone.
func (c *Client) Close(ctx context.Context) error {
	held := c.shut()
	released := make(chan error, len(held))
	for _, l := range held {
		c.background(func() { released <- l.Release(ctx) })
	}
	var errs []error
	for range held {
		select {
		case err := <-released:
			errs = append(errs, err)
		case <-ctx.Done():
		}
	}
	errs = append(errs, c.Settle(ctx))
	if c.root {
		errs = append(errs, c.store.Close(ctx))
	}
	return errors.Join(errs...)
}

// shut refuses further attempts, ends the waits under way, and returns the leases to release.
func (c *Client) shut() []*Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.shared.closed = c.shared.closed || c.root
	for end, owner := range c.waits {
		if c.root || owner == c {
			(*end)(c.closedError(""))
		}
	}
	var held []*Lease
	for l, owner := range c.leases {
		if c.root || owner == c {
			held = append(held, l)
		}
	}
	return held
}

// waiting derives a context that also ends when the client is closed. Call done when the wait is over.
func (c *Client) waiting(ctx context.Context) (wait context.Context, done func()) {
	wait, end := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.shared.closed {
		end(c.closedError(""))
	}
	c.waits[&end] = c
	return wait, func() {
		c.mu.Lock()
		delete(c.waits, &end)
		c.mu.Unlock()
		end(context.Canceled)
	}
}

// Settle waits until nothing that this client, or one derived from the same, began is under way in the background, such as the
// give-back of an acquire whose caller has gone; each such request is bounded by Options.CallTimeout. Call it before the process
// is frozen, as a serverless runtime does after an invocation. Held leases are not waited for. It returns ctx's cause if
// ctx ends first.
func (c *Client) Settle(ctx context.Context) error {
	for {
		c.mu.Lock()
		work, quiet := c.work, c.quiet
		c.mu.Unlock()
		if work == 0 {
			return nil
		}
		select {
		case <-quiet:
		case <-ctx.Done():
			return Cause(ctx)
		}
	}
}

// background runs f in a goroutine that Settle waits for.
func (s *shared) background(f func()) {
	s.mu.Lock()
	s.begin()
	s.mu.Unlock()
	go func() {
		defer s.leave()
		f()
	}()
}

// begin counts work in the background; s.mu is held.
func (s *shared) begin() {
	if s.work == 0 {
		s.quiet = make(chan struct{})
	}
	s.work++
}

// leave ends work that begin counted.
func (s *shared) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.work--; s.work == 0 {
		close(s.quiet)
	}
}

// add registers l, unless the client was closed meanwhile.
func (c *Client) add(l *Lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.shared.closed {
		return false
	}
	c.leases[l] = c
	if c.idle == nil {
		c.idle = make(chan struct{})
		go c.watch(c.idle)
	}
	return true
}

func (s *shared) remove(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, l)
	if len(s.leases) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// watchEvery is how often the wall clock is compared with the deadlines: timers follow the monotonic clock alone and sleep
// on when that stood still. A process that wakes is to know within 250 ms.
const watchEvery = 100 * time.Millisecond

// watch ends leases whose deadline was passed by either clock. One goroutine serves all leases and ends with the last.
func (s *shared) watch(idle <-chan struct{}) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	var held []*Lease
	for {
		select {
		case <-idle:
			return
		case <-t.C:
		}
		held = held[:0]
		s.mu.Lock()
		for l := range s.leases {
			held = append(held, l)
		}
		s.mu.Unlock()
		now := s.clock()
		for _, l := range held {
			if l.overdue(now) {
				s.background(func() { l.check(now) }) // an observer that is slow must not keep the others waiting
			}
		}
	}
}
