package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// tries is how often one call is sent at most when the answer is lost or the store is briefly out.
const tries = 3

// TryAcquire asks for name once and does not wait for another holder: a held lock gives a *HeldError. It blocks for at most
// three requests, each bounded by Options.CallTimeout, and all by ctx. ctx does not end the lease.
//
// If ctx ends or the store fails while the outcome is unknown, the error is of class ErrInDoubt and the lock, if it was
// granted, is given back in the background or ends by itself after its TTL.
func (c *Client) TryAcquire(ctx context.Context, name string) (*Lease, error) {
	return c.try(ctx, name, nil, c.clock(), 1)
}

// TryAcquireMark is TryAcquire on the condition that the lock's marks lie before m; otherwise it gives a *PassedError. It
// costs no more than TryAcquire. Stores without marks (Limits) give ErrInvalid.
func (c *Client) TryAcquireMark(ctx context.Context, name string, m Mark) (*Lease, error) {
	switch {
	case !c.limits.Marks:
		return nil, Invalid("acquire", name, "%s keeps no marks", c.limits.Store)
	case m.Occurrence <= 0:
		return nil, Invalid("acquire", name, "the occurrence %d is not after 1970", m.Occurrence)
	}
	return c.try(ctx, name, &m, c.clock(), 1)
}

// Acquire blocks until name is granted or ctx ends. ctx bounds only the wait; it does not end the lease. If ctx ends first,
// the error wraps its cause and the last *HeldError. A store that is out is tried for one TTL before its error is returned;
// errors that trying again cannot mend are returned at once.
//
// Waiters are not queued: no fairness is promised. Where the store does not wake them, a client that takes a lock again and
// again lets others have their turn: it pauses before the first attempt, about as long as a waiter between two looks, at most
// for half of the time that ctx has left, and looks who came, one request more. It does so each time while it meets others, otherwise after
// 5 s without a moment for them, and ever more rarely.
func (c *Client) Acquire(ctx context.Context, name string) (*Lease, error) {
	began := c.clock()
	last := c.yield(ctx, name)
	wellAt := c.clock()
	for n := 1; ; n++ {
		l, err := c.try(ctx, name, nil, began, n)
		if err == nil {
			return l, nil
		}
		if held, ok := errors.AsType[*HeldError](err); ok {
			if err := c.Wait(ctx, held); err != nil {
				return nil, err
			}
			wellAt, last = c.clock(), held
			continue
		}
		if ctx.Err() != nil && last != nil && !errors.Is(err, ErrInDoubt) { // it ended just before a request was sent
			return nil, c.gaveUp(ctx, last)
		}
		out := c.clock().Fast(wellAt)
		if !transient(err) || out > c.opt.TTL || ctx.Err() != nil || !sleep(ctx, Jitter(outagePause, 0.2)) {
			return nil, err
		}
	}
}

func (c *Client) gaveUp(ctx context.Context, h *HeldError) error {
	return &Error{
		Op: "acquire", Store: c.limits.Store, Name: h.Name, Class: ErrHeld,
		Err: fmt.Errorf("gave up waiting: %w; %w", Cause(ctx), h),
	}
}

// outagePause lets a service that is out come to itself: an attempt in vain was up to three requests, and its give-back as
// many. With it a waiter stays below five requests a second.
const outagePause = 1300 * time.Millisecond

// Do acquires name, calls fn and releases. fn's context is that of the lease: it ends with cause ErrLost before the lease
// can. If fn returns nil although the lease was lost in between, Do returns ErrLost; if fn fails, its error comes first.
// A release that fails after fn succeeded is told to the observer only: the work is done, and the lock ends by itself.
func (c *Client) Do(ctx context.Context, name string, fn func(context.Context, *Lease) error) (err error) {
	l, err := c.Acquire(ctx, name)
	if err != nil {
		return err
	}
	defer func() {
		if released := l.Release(ctx); err == nil && errors.Is(released, ErrLost) {
			err = released
		}
	}()
	held, cancel := l.Context(ctx)
	defer cancel()
	err = fn(held, l)
	if lost := l.Err(); errors.Is(lost, ErrLost) {
		return errors.Join(err, lost)
	}
	return err
}

// try makes one attempt and turns its grant into a lease that is kept alive. The caller has waited since then; this is its nth.
func (c *Client) try(ctx context.Context, name string, m *Mark, since Reading, n int) (*Lease, error) {
	if err := CheckName(name); err != nil {
		return nil, &Error{Op: "acquire", Store: c.limits.Store, Class: ErrInvalid, Err: err}
	}
	if err := c.enter(name); err != nil {
		return nil, err
	}
	defer c.leave()
	if ctx.Err() != nil {
		return nil, &Error{Op: "acquire", Store: c.limits.Store, Name: name, Class: ErrUnavailable, Err: Cause(ctx)}
	}
	g, err := c.attempt(ctx, Request{
		Name: name, Holder: c.holder, TTL: c.opt.TTL, Attempt: newID(), Since: c.clock(), Mark: m,
	})
	if err != nil {
		c.observeFailure(name, err)
		return nil, err
	}
	l := newLease(c, g)
	if l.remaining(c.clock()) <= 0 {
		c.giveBack(g)
		return nil, &Error{
			Op: "acquire", Store: c.limits.Store, Name: name, Class: ErrUnavailable,
			Err: errors.New("the answer came after the lease's trust had ended"), Hint: "it was given back; try again, or use a longer TTL",
		}
	}
	l.start()
	added := c.add(l)
	c.forgetNamesake(name)
	c.crowds.granted(name, g.Token, c.clock())
	c.observe(Event{Kind: Acquired, Name: name, Token: g.Token, Took: c.clock().Fast(since), Tries: n})
	if !added {
		return nil, errors.Join(c.closedError(name), l.Release(ctx))
	}
	if l.Err() != nil {
		c.remove(l) // it ended before it was added
	}
	return l, nil
}

// attempt sends r until there is an answer. A retry is the same attempt, so a stored first try is recognized.
func (c *Client) attempt(ctx context.Context, r Request) (Grant, error) {
	doubt := false
	for try := 1; ; try++ {
		g, err := c.acquireOnce(ctx, r)
		if err == nil {
			return g, nil
		}
		doubt = doubt || errors.Is(err, ErrInDoubt)
		if transient(err) && try < tries && sleep(ctx, resendPause(try)) {
			continue
		}
		if doubt {
			c.giveBack(Grant{Request: r})
			err = inDoubt(err)
		}
		return Grant{}, err
	}
}

func (c *Client) acquireOnce(ctx context.Context, r Request) (Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	return c.store.TryAcquire(ctx, r)
}

// inDoubt makes a transient error say that the grant may exist: an earlier try was not answered.
func inDoubt(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || !transient(err) {
		return err
	}
	doubted := *e
	doubted.Class = ErrInDoubt
	doubted.Hint = "if it was granted, it is given back in the background or ends after its TTL"
	return &doubted
}

// giveBackPause is the pause before the second and last try to give something back.
const giveBackPause = 1500 * time.Millisecond

func (c *Client) free(g Grant) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.opt.CallTimeout)
	defer cancel()
	return c.store.Release(ctx, g, Final{})
}

// giveBack frees in the background what g, or its attempt, was granted.
func (c *Client) giveBack(g Grant) {
	c.background(func() {
		err := c.free(g)
		if transient(err) { // once more, and not soon: the store may be in trouble
			time.Sleep(Jitter(giveBackPause, 0.3))
			err = c.free(g)
		}
		if errors.Is(err, ErrLost) {
			err = nil // there was nothing to give back
		}
		c.observe(Event{Kind: Abandoned, Name: g.Name, Token: g.Token, Err: err})
	})
}

func (c *Client) observeFailure(name string, err error) {
	if errors.Is(err, ErrPassed) {
		return // a finished job is no event of a lease
	}
	held, ok := errors.AsType[*HeldError](err)
	if !ok {
		c.observe(Event{Kind: StoreFailed, Name: name, Err: err})
		return
	}
	c.observe(Event{Kind: Contended, Name: name, Err: err})
	c.observeNamesake(held)
}

func (c *Client) observe(e Event) {
	e.Holder = c.holder
	c.opt.Observer.Observe(e)
}
