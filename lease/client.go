package lease

import (
	"context"
	crand "crypto/rand"
	"reflect"
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

	namesakes map[string]string // lock: the other instance of our name that was told of; guarded by shared.mu
	crowds    crowds
}

// shared is what a client and those derived from it by With have in common.
type shared struct {
	store  Store
	limits Limits
	clock  Clock

	instance string // tells this process's clients from those of another with the same name

	mu      sync.Mutex
	clients int             // ever made
	work    map[*Client]int // attempts under way and what is given back in the background
	less    chan struct{}   // closed when a client has no work left; nil while nobody waits for that
	closed  bool
	leases  map[*Lease]*Client
	watch   *time.Timer // runs look
	watched bool        // watch is set
	waits   map[*context.CancelCauseFunc]*Client
}

// New makes a client of s. nil options are all defaults. It makes no request. The client owns s: Close closes it.
func New(s Store, o *Options) (*Client, error) {
	if v := reflect.ValueOf(s); s == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, Invalid("configure", "", "the store is nil")
	}
	if o == nil {
		o = &Options{}
	}
	sh := &shared{
		store: s, limits: s.Limits(), clock: clockOf(s), instance: newID()[:instanceLength], leases: map[*Lease]*Client{}, waits: map[*context.CancelCauseFunc]*Client{},
		work: map[*Client]int{},
	}
	c, err := sh.client(*o, true)
	if err != nil {
		return nil, err
	}
	sh.watch = time.AfterFunc(time.Hour, sh.look)
	sh.watch.Stop()
	return c, nil
}

func (s *shared) client(o Options, root bool) (*Client, error) {
	o, err := o.withDefaults(s.limits)
	if err != nil {
		return nil, err
	}
	return &Client{shared: s, opt: o, root: root, holder: s.holderName(o.Holder), namesakes: map[string]string{}}, nil
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

// enter counts an attempt under way, so that Close waits for it; leave when it is over.
func (c *Client) enter(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.shared.closed {
		return c.closedError(name)
	}
	c.work[c]++
	return nil
}

func (c *Client) closedError(name string) error {
	return &Error{Op: "acquire", Store: c.limits.Store, Name: name, Class: ErrClosed}
}

// newID is 128 bits of randomness, unique to one attempt.
func newID() string { return strings.ToLower(crand.Text()) }

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
