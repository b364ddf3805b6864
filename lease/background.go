package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Close releases the client's leases, ends its waits with ErrClosed, waits for what it gives back in the background, and
// closes the store, which has three Options.CallTimeout for it. ctx bounds the waiting; requests that are under way then go
// on, each for Options.CallTimeout at most. A client made by With leaves the store and the other clients' leases alone.
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
		bounded, cancel := context.WithTimeout(ctx, closeCalls*c.opt.CallTimeout)
		defer cancel()
		errs = append(errs, c.store.Close(bounded))
	}
	return errors.Join(errs...)
}

// closeCalls bounds what a store gives back when it is closed, such as a session: a few requests, one of which may hang.
const closeCalls = 3

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

// Settle waits until nothing that this client began is under way in the background, such as the give-back of an acquire whose
// caller has gone; each such request is bounded by Options.CallTimeout. The client that New made waits for those derived
// from it, too. Call it before the process is frozen, as a serverless runtime does after an invocation. Held leases are
// not waited for. It returns ctx's cause if ctx ends first.
func (c *Client) Settle(ctx context.Context) error {
	for {
		c.mu.Lock()
		busy := c.work[c] > 0 || c.root && len(c.work) > 0
		if busy && c.less == nil {
			c.less = make(chan struct{})
		}
		less := c.less
		c.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-less:
		case <-ctx.Done():
			return Cause(ctx)
		}
	}
}

// background runs f in a goroutine that Settle waits for.
func (c *Client) background(f func()) {
	c.mu.Lock()
	c.work[c]++
	c.mu.Unlock()
	go func() {
		defer c.leave()
		f()
	}()
}

// leave ends work that was counted.
func (c *Client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.work[c]--; c.work[c] > 0 {
		return
	}
	delete(c.work, c)
	if c.less != nil {
		close(c.less)
		c.less = nil
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
	c.watchLocked()
	return true
}

func (s *shared) remove(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, l)
}

// watchEvery is how often the wall clock is compared with the deadlines: timers follow the monotonic clock alone and sleep
// on when that stood still. A process that wakes is to know within 250 ms.
const watchEvery = 100 * time.Millisecond

// watchLocked sets the one timer that serves all leases. It is not stopped with the last one but runs out, so that locks which
// are held for a moment, one after the other, do not move it each time.
func (s *shared) watchLocked() {
	if !s.watched && len(s.leases) > 0 {
		s.watched = true
		s.watch.Reset(watchEvery)
	}
}

// look ends leases whose deadline was passed by either clock.
func (s *shared) look() {
	s.mu.Lock()
	held := slices.Collect(maps.Keys(s.leases))
	s.mu.Unlock()
	now := s.clock()
	for _, l := range held {
		l.check(now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = false
	s.watchLocked()
}
