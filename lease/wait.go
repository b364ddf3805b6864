package lease

import (
	"context"
	"errors"
	"time"
)

// Wait blocks until the lock that h describes is worth another attempt, and returns nil, or until ctx ends, and returns an
// error that wraps ctx's cause and h.
//
// Where the store does not wake its waiters, Wait looks at the lock now and then, one request each. It looks soon after the
// lock has changed hands, and about once a second when that was long ago; with the lease's end in mind, if that is known. One
// that sees the lock change hands between its looks is one of a crowd and pauses longer, TTL/4 on average at most, as it
// learns from looks in vain: a hundred who want one lock make some twenty looks a second together. No waiter makes more
// than five a second on average.
func (c *Client) Wait(ctx context.Context, h *HeldError) error {
	wait, done := c.waiting(ctx)
	defer done()
	var err error
	if w, ok := c.store.(Waiter); ok {
		began := c.clock()
		err = w.Wait(wait, h)
		if err == nil && c.clock().Fast(began) < quickWait {
			sleep(wait, Jitter(minRetry, 0.2)) // a store that calls a held lock free, again and again, must not make a storm
		}
	} else {
		h, err = c.await(wait, h)
	}
	switch {
	case ctx.Err() != nil:
		return c.gaveUp(ctx, h)
	case wait.Err() != nil:
		return c.closedError(h.Name)
	case err != nil && !transient(err):
		return err
	case err != nil:
		sleep(wait, Jitter(poll(c.opt.TTL), 0.5))
	}
	return nil
}

// quickWait is too short for a wait in which anything was waited for.
const quickWait = 10 * time.Millisecond

// await waits where the store does not wake its waiters.
func (c *Client) await(ctx context.Context, h *HeldError) (*HeldError, error) {
	name, now := h.Name, c.clock()
	c.crowds.enter(name, now)
	defer func() { c.crowds.leave(name, c.clock()) }()
	return c.look(ctx, name, h, c.crowds.saw(name, h, now))
}

// look pauses until the lock is worth another attempt, and returns who was seen to hold it last. h and s are what is known of it
// now. Where a look costs less than an attempt it goes on until a look does not find the lock held.
func (c *Client) look(ctx context.Context, name string, h *HeldError, s sight) (*HeldError, error) {
	_, cheap := c.store.(Looker)
	for {
		if !sleep(ctx, within(s.pause(c.opt.TTL), h.RetryAfter)) {
			return h, Cause(ctx)
		}
		if !cheap {
			return h, nil
		}
		err := c.lookOnce(ctx, name)
		held, ok := errors.AsType[*HeldError](err)
		if !ok {
			return h, err
		}
		h, s = held, c.crowds.saw(name, held, c.clock())
	}
}

// lookOnce makes one request.
func (c *Client) lookOnce(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout) // a request that was swallowed must not stop the waiting
	defer cancel()
	var last Token
	var err error
	if l, ok := c.store.(Looker); ok {
		last, err = l.Look(ctx, name)
	} else {
		var info Info
		if info, err = c.store.Inspect(ctx, name); err == nil && info.State == Held {
			err = &HeldError{Name: name, Holder: info.Holder, Token: info.Token}
		}
		last = info.Token
	}
	if err == nil {
		c.crowds.sawFree(name, last)
	}
	return err
}

// yield lets others have their turn before a client that has just released name asks for it again: one that has met others, or that
// has taken the lock at once for a while and cannot know whether others wait. Without a pause it would have the lock back
// before any of them has looked, for ever. Then it looks who came. It returns who was seen to hold the lock at last.
func (c *Client) yield(ctx context.Context, name string) *HeldError {
	s, ok := c.crowds.yields(name, c.clock())
	if !ok || s.pause(c.opt.TTL) <= s.idle {
		return nil
	}
	wait, done := c.waiting(ctx)
	defer done()
	c.crowds.enter(name, c.clock())
	defer func() { c.crowds.leave(name, c.clock()) }()
	pause := Jitter(s.pause(c.opt.TTL)-s.idle, 0.25)
	if end, ok := ctx.Deadline(); ok {
		pause = min(pause, time.Until(end)/2) //nolint:forbidigo // nobody is to be late by it; contexts end by the runtime's clock
	}
	if !sleep(wait, pause) || wait.Err() != nil {
		return nil
	}
	err := c.lookOnce(wait, name)
	h, held := errors.AsType[*HeldError](err)
	if !held {
		return nil // an error is the attempt's to tell
	}
	h, _ = c.look(wait, name, h, c.crowds.saw(name, h, c.clock()))
	return h
}

// wakes tells whether the store wakes its waiters.
func (c *Client) wakes() bool {
	_, ok := c.store.(Waiter)
	return ok
}
