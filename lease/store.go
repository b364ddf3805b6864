package lease

import (
	"context"
	"iter"
	"time"
)

// Token is a fencing token. For one lock name it grows with every grant, for ever: across release, expiry, crash, forced
// release and deletion of the record. It is never 0 and never above MaxToken.
type Token uint64

// MaxToken is the largest token a store hands out: 2^53-1, the largest integer that JSON readers and every engine keep
// exactly. At the end of the range a store fails; it never wraps.
const MaxToken Token = 1<<53 - 1

// MaxValue is the largest value, in bytes, that is kept with a lock.
const MaxValue = 512

// Store is the small interface that a lock service implements. Its specification is executable: leasetest.TestStore.
//
// Every method makes at most the requests that its store documents, does not retry, and returns when ctx ends. Errors are
// *Error with a class (ErrUnavailable, ErrInDoubt, ErrDenied, ...); the service's own error stays reachable with errors.As.
// Methods are safe for concurrent use.
type Store interface {
	// TryAcquire makes one attempt. A second call with the same Request.Attempt is a retry of the first: if the first
	// was stored, the same grant is returned, trusted from Request.Since. If the lock is held the error is a
	// *HeldError; if r.Mark refuses the occurrence it is a *PassedError. An error of class ErrInDoubt means that
	// the grant may exist; every other error means that it does not.
	TryAcquire(ctx context.Context, r Request) (Grant, error)

	// Renew extends g and returns it with a new Sent and Trust. ErrLost means that the lease is certainly gone. Any
	// other error leaves the outcome unknown, and the caller keeps its trust until the old deadline.
	Renew(ctx context.Context, g Grant) (Grant, error)

	// Release ends g and applies f in the same write. It returns ErrLost if g no longer is the lock's grant, and leaves
	// the next holder untouched. A release whose earlier try was stored is a success. A zero g.Token means that
	// the outcome of the attempt g.Attempt is unknown: whatever it was granted is freed.
	Release(ctx context.Context, g Grant, f Final) error

	// Save keeps value (at most MaxValue bytes) with the lock while g is its grant, and renews g where that is free.
	// ErrLost means that nothing was saved.
	Save(ctx context.Context, g Grant, value []byte) (Grant, error)

	// Inspect describes a lock as the service has it now (never from a stale replica). A name that was never
	// locked gives an Info with State Absent and no error.
	Inspect(ctx context.Context, name string) (Info, error)

	// Limits tells what the service can do. It makes no request.
	Limits() Limits

	// Close gives back what the store itself holds, such as a session. It does not release grants.
	Close(ctx context.Context) error
}

// Request asks for a lock.
type Request struct {
	Name    string        // 1 to 255 bytes of UTF-8, see CheckName
	Holder  string        // who asks; shown to others, unique to one client
	TTL     time.Duration // how long the lease lasts without renewal
	Attempt string        // new for every attempt, the same for its retries; never logged
	Since   Reading       // when the attempt was first sent
	Mark    *Mark         // nil: no condition on occurrences
}

// Mark makes a grant depend on occurrences, in the same write as the grant: that of a scheduled job is acquired only while
// the job's ordered marks lie before it.
type Mark struct {
	// Occurrence is the scheduled instant in unix seconds, above 0. A store whose service tells its time refuses one
	// that lies more than MaxAhead after it with ErrInvalid, because it would block every earlier one for ever.
	Occurrence int64
	// AtMostOnce asks for started < Occurrence; without it the condition is finished < Occurrence.
	AtMostOnce bool
}

// MaxAhead is how far an occurrence may lie in the service's future.
const MaxAhead = time.Minute

// Marks are the ordered marks kept with a lock, as unix seconds; 0 means none.
type Marks struct {
	Started  int64 // newest occurrence that was ever started
	Finished int64 // newest occurrence that was finished
	Running  int64 // occurrence of the present grant
}

// Refuses tells whether m lets no grant for these marks.
func (m *Mark) Refuses(have Marks) bool {
	if m == nil {
		return false
	}
	if m.AtMostOnce {
		return have.Started >= m.Occurrence || have.Finished >= m.Occurrence
	}
	return have.Finished >= m.Occurrence
}

// Grant is a lock that was given to a Request.
type Grant struct {
	Request
	Token   Token
	Proof   string        // the store's own evidence (nonce, lease id, session); never logged
	Value   []byte        // value kept with the lock when it was granted
	Marks   Marks         // marks kept with the lock, including those that the grant set
	Expires time.Time     // end on the service's clock; zero where only the service knows
	Sent    Reading       // when the request that gave or renewed the grant was first sent
	Trust   time.Duration // how long after Sent the grant can be trusted, before any margin
}

// Final is what a release leaves behind, in the same write.
type Final struct {
	Value []byte // nil keeps the value as it is; empty removes it
	Marks *Marks // nil keeps the marks as they are; Running is always cleared
}

// State is the state of a lock.
type State string

// The states of a lock.
const (
	Absent State = "absent" // never locked, or its record was deleted
	Free   State = "free"   // released
	Held   State = "held"   // granted, its end not reached
	Dead   State = "dead"   // granted, its end reached without a release: the next attempt takes it
)

// Info describes a lock.
type Info struct {
	Name    string
	State   State
	Holder  string // empty where nobody holds it or the service does not say
	Token   Token  // of the present or the last grant
	Since   time.Time
	Expires time.Time // on the service's clock; zero where it does not say
	Value   []byte
	Marks   Marks
	Broken  *Reason // the last forced release of this lock; nil: none
}

// Limits are a store's limits.
type Limits struct {
	Store       string // what the store is called in errors, such as "dynamodb table locks"
	MinTTL      time.Duration
	MaxTTL      time.Duration
	Granularity time.Duration // TTLs are whole multiples of it; 0: any
	Marks       bool          // Request.Mark and Final.Marks work
}

// Waiter is implemented by stores that know better than a timer when a held lock may be tried again.
type Waiter interface {
	// Wait blocks until the lock that h describes looks free, and returns nil, or until ctx ends.
	Wait(ctx context.Context, h *HeldError) error
}

// Looker is implemented by stores that are no Waiter and whose look at a held lock costs less than an attempt in vain.
type Looker interface {
	// Look makes one request and returns the last token of name, and a *HeldError if an attempt would find it held. Without
	// an error it looks free, or dead, and is worth an attempt.
	Look(ctx context.Context, name string) (Token, error)
}

// Watcher is implemented by stores that hear of a loss before the next renewal would.
type Watcher interface {
	// Watch blocks until g is certainly not the lock's grant any more, and returns an error of class ErrLost, or until ctx
	// ends. A client calls it for a lease that it has held for a second.
	Watch(ctx context.Context, g Grant) error
}

// Lister is implemented by stores that can list their locks.
type Lister interface {
	// List yields the locks whose names start with prefix, in no promised order. An error ends the listing; a partial
	// listing is never passed off as the whole.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// Breaker is implemented by stores that can take a lock away from its holder.
type Breaker interface {
	// Break ends the grant of name that has token, held or dead, and records r with the lock. If the lock is free, was
	// never locked, or has another token by now, the error is ErrConflict, says which, and nothing is changed: an
	// operator breaks what was inspected, never what came after. The next token is higher. The holder learns it at
	// its next renewal and trusts its lease until then, so that two may trust it for up to one TTL; only a fence stops
	// the former one sooner.
	Break(ctx context.Context, name string, token Token, r Reason) error
}

// Reason is kept with a lock that was broken, for those who ask later.
type Reason struct {
	By    string // who broke it; not empty
	Why   string
	Token Token     // of the grant that was broken; set by Break
	At    time.Time // on the service's clock; set by Break
}

// Floorer is implemented by stores whose tokens can fall behind, such as after a restore from an older copy.
type Floorer interface {
	// RaiseFloor makes the next token of name higher than token. A held lock gives a *HeldError and is left alone; a floor
	// that is reached already is a success.
	RaiseFloor(ctx context.Context, name string, token Token) error
}

// Records is implemented by stores that keep small records beside their locks, changed by compare-and-swap.
type Records interface {
	// Load returns a record, strongly consistent. A missing one has Version 0.
	Load(ctx context.Context, key string) (Record, error)
	// Swap replaces the record that has old.Version (0: none) by value and returns it. If the stored version differs
	// the error is ErrConflict and nothing is written. keep is how long the record is kept at least; 0: for ever.
	Swap(ctx context.Context, old Record, value []byte, keep time.Duration) (Record, error)
	// Scan yields the records whose keys start with prefix. An error ends the scan.
	Scan(ctx context.Context, prefix string) iter.Seq2[Record, error]
}

// Record is a small versioned value.
type Record struct {
	Key     string
	Version uint64
	Value   []byte
}
