package bloblease

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"

	"github.com/cloudlease/cloudlease/internal/escape"
	"github.com/cloudlease/cloudlease/internal/servertime"
	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// The limits of a TTL, which are those of the service's leases.
const (
	MinTTL = 15 * time.Second
	MaxTTL = 60 * time.Second
)

// Options are a store's options. The zero value of every field is its documented default.
type Options struct {
	// Prefix begins the names of all blobs of the store, so that a container can be shared. Default "cloudlease/"; 1 to 200
	// characters, of ASCII letters, digits, '-', '_' and '/'.
	Prefix string
	// NoHolder saves the request that writes the holder with every grant. Others are then told that a lock is held, and not
	// by whom. Occurrences (lease.Mark) are written all the same.
	NoHolder bool
	// MetadataTokens keeps the token in the metadata of a block blob instead of the sequence number of a page blob, for
	// accounts without page blobs (hierarchical namespace, premium block blobs). It costs one request less; Native then has
	// no sequence number to compare with. All stores of a container must agree on it.
	MetadataTokens bool
	// Clock is this host's clocks. Default lease.SystemClock.
	Clock lease.Clock
	// Logger is told when what the service says of its time contradicts itself, and when a broken lock was taken before the
	// reason could be kept. Default slog.Default.
	Logger *slog.Logger
}

// Store keeps leases in one container. It implements lease.Store, lease.Lister, lease.Breaker, lease.Floorer, lease.Records and
// lease.Clocked. It is safe for concurrent use.
type Store struct {
	api   *container.Client
	place string
	opt   Options
	clock lease.Clock
	time  servertime.Clock

	mu      sync.Mutex
	clients map[string]*pageblob.Client // of locks, by name
	seen    map[string]record           // by name
	claims  map[claimKey]claim          // those whose lease was asked for
	entries map[string]azcore.ETag      // of records, by key and version
	told    map[string]lease.Reading    // when something was last logged
}

// New makes a store of a container, which must exist. The client may have any of the SDK's credentials. It makes no request.
// The SDK's own retries are not used: the lease package retries, bounded by the lease's deadline. nil options are all
// defaults.
func New(c *container.Client, o *Options) (*Store, error) {
	if c == nil {
		return nil, lease.Invalid("configure", "", "the container client is nil")
	}
	s := &Store{
		api: c, place: placeOf(c.URL()), clients: map[string]*pageblob.Client{}, seen: map[string]record{}, claims: map[claimKey]claim{},
		entries: map[string]azcore.ETag{}, told: map[string]lease.Reading{},
	}
	if o != nil {
		s.opt = *o
	}
	if s.opt.Prefix == "" {
		s.opt.Prefix = defaultPrefix
	}
	if err := checkPrefix(s.opt.Prefix); err != nil {
		return nil, err
	}
	s.clock = s.opt.Clock
	if s.clock == nil {
		s.clock = lease.SystemClock
	}
	return s, nil
}

// Limits are a TTL of MinTTL to MaxTTL in whole seconds.
func (s *Store) Limits() lease.Limits {
	return lease.Limits{Store: s.place, MinTTL: MinTTL, MaxTTL: MaxTTL, Granularity: time.Second, Marks: true}
}

// Clock is the clock that the store was made with.
func (s *Store) Clock() lease.Clock { return s.clock }

// Close does nothing: the store holds nothing at the service but its leases.
func (s *Store) Close(context.Context) error { return nil }

// once turns the SDK's retries off: every try is a protocol step of its own.
var once = policy.RetryOptions{MaxRetries: -1}

// send makes one request and learns the service's time from its answer. The answer's header is empty if none came. Only answers
// with a request id are the service's; a gateway in between has a clock of its own.
func (s *Store) send(ctx context.Context, request func(context.Context) error) (http.Header, error) {
	if err := storeerr.Sendable(ctx); err != nil {
		return nil, err
	}
	var raw *http.Response
	ctx = policy.WithRetryOptions(policy.WithCaptureResponse(ctx, &raw), once)
	sent := s.clock()
	err := request(ctx)
	if raw == nil {
		return nil, err
	}
	date, dateErr := http.ParseTime(raw.Header.Get("Date"))
	if dateErr == nil && raw.Header.Get("X-Ms-Request-Id") != "" && s.time.Observe(sent, s.clock(), date) {
		s.warn("the service's Date contradicts earlier ones: its clock or this host's jumped, or its front ends differ",
			slog.Time("date", date))
	}
	return raw.Header, err
}

// warn logs a message at most once a minute.
func (s *Store) warn(message string, attrs ...slog.Attr) {
	now := s.clock()
	s.mu.Lock()
	last, before := s.told[message]
	quiet := before && now.Fast(last) < time.Minute
	if !quiet {
		s.told[message] = now
	}
	s.mu.Unlock()
	if quiet {
		return
	}
	log := s.opt.Logger
	if log == nil {
		log = slog.Default()
	}
	log.LogAttrs(context.Background(), slog.LevelWarn, message, append(attrs, slog.String("store", s.place))...) //nolint:sloglint // the messages are constant where they are made
}

// maxKept bounds each of the store's memories. Forgetting costs a request, or leaves an abandoned lease to its end; it never
// breaks a rule.
const maxKept = 4096

func keep[K comparable, V any](m map[K]V, key K, v V) {
	if _, known := m[key]; !known && len(m) >= maxKept {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[key] = v
}

// blob is a client of the blob of a lock, of whatever kind it is. It is kept, because to make one costs as much as a tenth of a
// request.
func (s *Store) blob(name string) *pageblob.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.clients[name]
	if !ok {
		b = s.api.NewPageBlobClient(s.lockPrefix() + escape.Name(name))
		keep(s.clients, name, b)
	}
	return b
}

func (s *Store) saw(rec record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep(s.seen, rec.name, rec)
}

func (s *Store) lastSeen(name string) (record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, ok := s.seen[name]
	return rec, ok
}

func (s *Store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, name)
}

// claimKey names an attempt.
type claimKey struct{ attempt, name string }

func (s *Store) claimed(r lease.Request) (claim, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.claims[claimKey{r.Attempt, r.Name}]
	return c, ok
}

func (s *Store) claiming(r lease.Request, c claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep(s.claims, claimKey{r.Attempt, r.Name}, c)
}

func (s *Store) unclaim(r lease.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, claimKey{r.Attempt, r.Name})
}
