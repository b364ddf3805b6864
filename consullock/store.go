package consullock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/servertime"
	"github.com/cloudlease/cloudlease/lease"
)

// The limits of a TTL. Consul's own default minimum is DefaultMinTTL; MaxTTL is the longest lock-delay that Consul has, which is
// what keeps a lock closed for a TTL when its session ends early.
const (
	DefaultMinTTL = 10 * time.Second
	MaxTTL        = 60 * time.Second
)

// Options are a store's options. The zero value of every field is its documented default.
type Options struct {
	// Prefix begins all keys of the store. Default "cloudlease/"; 1 to 200 characters, of ASCII letters, digits, '-', '_' and '/',
	// with a '/' at its end.
	Prefix string
	// MinTTL is the agents' session_ttl_min, where that was set lower or higher than Consul's own default. Default
	// DefaultMinTTL.
	MinTTL time.Duration
	// LockDelay is how long Consul lets nobody have a lock whose session ended without a release. Default: the TTL, so that a
	// session that ends early, as with the server that made it, gives nobody the lock while its holder may trust it.
	// Negative: none. At most MaxTTL.
	LockDelay time.Duration
	// Node is what the sessions belong to. Default: the agent that is asked, with which its sessions end. A node that was
	// registered in the catalog only, and runs no agent, outlives them all; deregistering it breaks all its locks.
	Node string
	// Checks are health checks of the node that end the sessions when they turn critical. Default none: a flapping check would
	// break the locks of holders that are well.
	Checks []string
	// NameHolder asks who has a lock that was refused: one more request, after which the *lease.HeldError names the holder and the
	// token. Occurrences (lease.Mark) are always told.
	NameHolder bool
	// Clock is this host's clocks. Default lease.SystemClock.
	Clock lease.Clock
	// Logger is told when what the service says of its time contradicts itself. Default slog.Default.
	Logger *slog.Logger
}

// Store keeps leases in the key-value store of one datacenter. It implements lease.Store, lease.Waiter, lease.Lister,
// lease.Watcher, lease.Breaker, lease.Floorer, lease.Records and lease.Clocked. It is safe for concurrent use.
type Store struct {
	api   *api.Client
	http  *http.Client // closed with the store if it is the store's own
	place string
	dc    string
	opt   Options
	clock lease.Clock
	time  servertime.Clock

	watching chan struct{} // a place for each blocking query of Watch

	mu       sync.Mutex
	closed   bool
	sessions map[time.Duration]*session  // by TTL
	making   map[time.Duration]*creation // by TTL
	holds    map[string]*hold            // by the lock's name: what this store has, asks for, or had without a release
	waits    map[string]waitState        // by the lock's name
	told     lease.Reading               // when something was last logged
}

// New makes a store of a client's configuration; nil is api.DefaultConfig, which reads CONSUL_HTTP_ADDR and its like. A lock is
// per datacenter: the configuration's Datacenter, or else the agent's own, is where all requests go. It makes no request. nil
// options are all defaults.
func New(cfg *api.Config, o *Options) (*Store, error) {
	s := &Store{
		sessions: map[time.Duration]*session{}, making: map[time.Duration]*creation{}, holds: map[string]*hold{},
		waits: map[string]waitState{}, watching: make(chan struct{}, maxWatches),
	}
	if o != nil {
		s.opt = *o
	}
	if s.opt.Prefix == "" {
		s.opt.Prefix = defaultPrefix
	}
	if s.opt.MinTTL == 0 {
		s.opt.MinTTL = DefaultMinTTL
	}
	if err := s.opt.check(); err != nil {
		return nil, err
	}
	s.clock = s.opt.Clock
	if s.clock == nil {
		s.clock = lease.SystemClock
	}
	client, own, c, err := connect(cfg, s.clock, s.observe)
	if err != nil {
		return nil, err
	}
	s.api, s.http, s.dc = client, own, c.Datacenter
	s.place = placeOf(c, s.opt.Prefix)
	return s, nil
}

func (o Options) check() error {
	faults := []error{checkPrefix(o.Prefix)}
	if o.MinTTL < 0 || o.MinTTL > MaxTTL {
		faults = append(faults, lease.Invalid("configure", "", "the least TTL %v is not within 0 to %v", o.MinTTL, MaxTTL))
	}
	if o.LockDelay > MaxTTL {
		faults = append(faults, lease.Invalid("configure", "", "the lock-delay %v is longer than %v, which is Consul's longest", o.LockDelay, MaxTTL))
	}
	if strings.ContainsAny(o.Node, "\"\n") {
		faults = append(faults, lease.Invalid("configure", "", "the node %.40q is no name of a node", o.Node))
	}
	return errors.Join(faults...)
}

// placeOf is what the locks are called in errors.
func placeOf(c api.Config, prefix string) string {
	if c.Datacenter != "" {
		return fmt.Sprintf("Consul %s/%s", c.Datacenter, strings.TrimSuffix(prefix, "/"))
	}
	return "Consul " + strings.TrimSuffix(prefix, "/")
}

// Limits are a TTL of Options.MinTTL to MaxTTL.
func (s *Store) Limits() lease.Limits {
	return lease.Limits{Store: s.place, MinTTL: s.opt.MinTTL, MaxTTL: MaxTTL, Marks: true}
}

// Clock is the clock that the store was made with.
func (s *Store) Clock() lease.Clock { return s.clock }

// closeTimeout bounds Close, whose caller may not: a session that is not destroyed ends by itself.
const closeTimeout = 5 * time.Second

// Close destroys the store's sessions, after it has freed what they hold without a lease. A session with a grant that was not
// released is left to expire: destroying it would close its lock for the lock-delay. It blocks for five seconds at most.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	var making []*creation
	for _, c := range s.making {
		making = append(making, c)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	for _, c := range making { // it then destroys what it made
		select {
		case <-c.done:
		case <-ctx.Done(): // nothing of this store goes on when it is closed
			c.stop()
			<-c.done
		}
	}
	var errs []error
	for _, ses := range s.takeSessions() {
		errs = append(errs, s.end(ctx, ses))
	}
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
	return errors.Join(errs...)
}

func (s *Store) takeSessions() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*session
	for ttl, ses := range s.sessions {
		all = append(all, ses)
		delete(s.sessions, ttl)
	}
	return all
}

// observe learns the service's time from an answer.
func (s *Store) observe(sent lease.Reading, header http.Header) {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil || !s.time.Observe(sent, s.clock(), date) {
		return
	}
	now := s.clock()
	s.mu.Lock()
	quiet := !s.told.IsZero() && now.Fast(s.told) < time.Minute
	if !quiet {
		s.told = now
	}
	s.mu.Unlock()
	if quiet {
		return
	}
	log := s.opt.Logger
	if log == nil {
		log = slog.Default()
	}
	log.LogAttrs(context.Background(), slog.LevelWarn,
		"the service's Date contradicts earlier ones: its clock or this host's jumped, or its agents differ",
		slog.Time("date", date), slog.String("store", s.place))
}

// now is the service's time, or zero before its first answer.
func (s *Store) now() time.Time {
	t, _ := s.time.Earliest(s.clock())
	return t
}
