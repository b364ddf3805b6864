package dynamolock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cloudlease/cloudlease/internal/servertime"
	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// API is the part of *dynamodb.Client that the package uses.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// Options are a store's options. The zero value of every field is its documented default.
type Options struct {
	// Clock is this host's clocks. Default lease.SystemClock.
	Clock lease.Clock
	// Logger is told when what the service says of its time contradicts itself. Default slog.Default.
	Logger *slog.Logger
}

// Store keeps leases in one DynamoDB table. It implements lease.Store, lease.Looker, lease.Lister, lease.Breaker, lease.Floorer,
// lease.Records and lease.Clocked. It is safe for concurrent use.
type Store struct {
	api   API
	table string
	clock lease.Clock
	log   *slog.Logger
	time  servertime.Clock
	mute  atomic.Bool // the engine does not return the item that made a condition fail

	mu      sync.Mutex
	seen    map[string]sighting
	saves   map[string]int64 // by attempt: the end (ms) that its last Save wrote
	told    lease.Reading    // when a contradiction of Dates was last logged
	told1st bool
}

// The limits of a TTL. A shorter one would leave no trust while the service's clock is known to a second only.
const (
	MinTTL = 2 * time.Second
	MaxTTL = time.Hour
)

// New makes a store of the table, whose hash key is the string "name" and which has no sort key (CreateTableInput). It makes
// no request. The SDK's own retries are not used: the lease package retries, bounded by the lease's deadline. nil options
// are all defaults.
func New(api API, table string, o *Options) (*Store, error) {
	if api == nil {
		return nil, lease.Invalid("configure", "", "the DynamoDB client is nil")
	}
	if table == "" {
		return nil, lease.Invalid("configure", "", "the DynamoDB table has no name")
	}
	if o == nil {
		o = &Options{}
	}
	s := &Store{api: api, table: table, clock: o.Clock, log: o.Logger, seen: map[string]sighting{}, saves: map[string]int64{}}
	if s.clock == nil {
		s.clock = lease.SystemClock
	}
	return s, nil
}

// Limits are a TTL of MinTTL to MaxTTL.
func (s *Store) Limits() lease.Limits {
	return lease.Limits{Store: place(s.table), MinTTL: MinTTL, MaxTTL: MaxTTL, Marks: true}
}

// Clock is the clock that the store was made with.
func (s *Store) Clock() lease.Clock { return s.clock }

// Close does nothing: the store holds nothing at the service but its leases.
func (s *Store) Close(context.Context) error { return nil }

func place(table string) string { return "DynamoDB table " + table }

// once turns the SDK's retries off for one call: every try is a protocol step of its own.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// get reads an item, strongly consistent, and learns the service's time.
func (s *Store) get(ctx context.Context, key string) (item, error) {
	if err := storeerr.Sendable(ctx); err != nil {
		return nil, err
	}
	sent := s.clock()
	out, err := s.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: keyOf(key), ConsistentRead: aws.Bool(true),
	}, once)
	if err != nil {
		s.learnFromError(sent, err)
		return nil, err
	}
	s.learn(sent, out.ResultMetadata)
	return out.Item, nil
}

// update writes an item and learns the service's time.
func (s *Store) update(ctx context.Context, in *dynamodb.UpdateItemInput) (item, error) {
	if err := storeerr.Sendable(ctx); err != nil {
		return nil, err
	}
	in.TableName = &s.table
	sent := s.clock()
	out, err := s.api.UpdateItem(ctx, in, once)
	if err != nil {
		s.learnFromError(sent, err)
		return nil, err
	}
	s.learn(sent, out.ResultMetadata)
	return out.Attributes, nil
}

func (s *Store) learn(sent lease.Reading, m metadata) {
	if date, ok := awsmiddleware.GetServerTime(m); ok {
		s.observe(sent, date)
	}
}

func (s *Store) learnFromError(sent lease.Reading, err error) {
	if date, ok := dateOf(err); ok {
		s.observe(sent, date)
	}
}

// observe takes a Date. Front ends may differ by a second, so a contradiction is no fault by itself; it is logged at most once
// a minute, because a clock that jumps is worth knowing.
func (s *Store) observe(sent lease.Reading, date time.Time) {
	now := s.clock()
	if !s.time.Observe(sent, now, date) {
		return
	}
	s.mu.Lock()
	clear(s.seen) // nothing is taken for dead on an older look and a new clock
	quiet := s.told1st && now.Fast(s.told) < time.Minute
	if !quiet {
		s.told, s.told1st = now, true
	}
	s.mu.Unlock()
	if quiet {
		return
	}
	log := s.log
	if log == nil {
		log = slog.Default()
	}
	log.Warn("the service's Date contradicts earlier ones: its clock or this host's jumped, or its front ends differ",
		slog.String("table", s.table), slog.Time("date", date))
}

// sighting is the last record of a name that this store saw, and since when it saw the same nonce.
type sighting struct {
	rec   record
	since lease.Reading
}

// maxSeen bounds what the store remembers. Forgetting costs a request, never correctness.
const maxSeen = 4096

// saw remembers rec, read or written at now.
func (s *Store) saw(rec record, now lease.Reading) sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.seen[rec.name]
	if known && old.rec.nonce == rec.nonce && old.rec.version == rec.version {
		old.rec = rec
		s.seen[rec.name] = old
		return old
	}
	if !known && len(s.seen) >= maxSeen {
		for name := range s.seen {
			delete(s.seen, name)
			break
		}
	}
	sight := sighting{rec: rec, since: now}
	s.seen[rec.name] = sight
	return sight
}

func (s *Store) lastSeen(name string) (sighting, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sight, ok := s.seen[name]
	return sight, ok
}

func (s *Store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, name)
}
