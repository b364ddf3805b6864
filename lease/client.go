package lease

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// Client acquires leases from one store. It is safe for concurrent use.
type Client struct {
	*shared
	opt    Options
	root   bool
	holder string // Options.Holder and this instance's id
	closed bool   // guarded by shared.mu
}

// shared is what a client and those derived from it by With have in common.
type shared struct {
	store  Store
	limits Limits
	clock  Clock

	mu     sync.Mutex
	work   int           // attempts under way and what is given back in the background
	quiet  chan struct{} // closed when work is 0 again
	closed bool
	leases map[*Lease]*Client
	idle   chan struct{} // closed when the last lease ends; nil while there is none
}

// New makes a client of s. nil options are all defaults. It makes no request. The client owns s: Close closes it.
func New(s Store, o *Options) (*Client, error) {
	if s == nil {
		return nil, Invalid("configure", "", "the store is nil")
	}
	if o == nil {
		o = &Options{}
	}
	sh := &shared{store: s, limits: s.Limits(), clock: clockOf(s), leases: map[*Lease]*Client{}}
	return sh.client(*o, true)
}

func (s *shared) client(o Options, root bool) (*Client, error) {
	o, err := o.withDefaults(s.limits)
	if err != nil {
		return nil, err
	}
	return &Client{shared: s, opt: o, root: root, holder: o.Holder + ":" + newID()[:8]}, nil
}

// With makes a client of the same store with other options. It is another holder: its leases are not c's. Closing it
// releases its own leases only.
func (c *Client) With(o Options) (*Client, error) {
	if o.Holder == "" {
		o.Holder = c.opt.Holder
	}
	if o.Observer == nil {
		o.Observer = c.opt.Observer
	}
	return c.client(o, false)
}

// Options are the options in force, defaults filled in.
func (c *Client) Options() Options { return c.opt }

// Holder is how this client is known to others: Options.Holder and an id of this instance.
func (c *Client) Holder() string { return c.holder }

// Store is the store that the client was made of, for the optional interfaces.
func (c *Client) Store() Store { return c.store }

// Clock is the clock that trust is measured with.
func (c *Client) Clock() Clock { return c.clock }

// Inspect describes a lock. It blocks for one request, bounded by ctx and Options.CallTimeout.
func (c *Client) Inspect(ctx context.Context, name string) (Info, error) {
	if err := CheckName(name); err != nil {
		return Info{}, &Error{Op: "inspect", Store: c.limits.Store, Class: ErrInvalid, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	return c.store.Inspect(ctx, name)
}

// Close releases the client's leases, waits for what it gives back in the background, and closes the store. ctx bounds
// the waiting. A client made by With leaves the store and the other clients' leases alone.
func (c *Client) Close(ctx context.Context) error {
	held := c.shut()
	errs := make([]error, len(held), len(held)+2)
	var wg sync.WaitGroup
	for i, l := range held {
		wg.Go(func() { errs[i] = l.Release(ctx) })
	}
	wg.Wait()
	if !c.root {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, c.Settle(ctx), c.store.Close(ctx))...)
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
			return context.Cause(ctx)
		}
	}
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

// shut refuses further attempts and returns the leases to release.
func (c *Client) shut() []*Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.shared.closed = c.shared.closed || c.root
	var held []*Lease
	for l, owner := range c.leases {
		if c.root || owner == c {
			held = append(held, l)
		}
	}
	return held
}

// enter counts an attempt under way, so that Close waits for it; leave when it is over.
func (c *Client) enter(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.shared.closed {
		return c.closedError(name)
	}
	c.begin()
	return nil
}

func (c *Client) closedError(name string) error {
	return &Error{Op: "acquire", Store: c.limits.Store, Name: name, Class: ErrClosed}
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
			l.check(now)
		}
	}
}

// newID is 128 bits of randomness, unique to one attempt.
func newID() string { return strings.ToLower(crand.Text()) }

// jitter spreads d by plus or minus part of it.
func jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*rand.Float64()-1))) //nolint:gosec // spreads load, keeps no secret
}

// sleep waits for d. It tells whether it waited to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
