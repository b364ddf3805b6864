// Package memlease keeps leases in memory, with the same contract as the stores on real services: for unit tests, examples
// and several workers in one process. It coordinates nothing outside of the process.
//
// A Service is the lock service; each Store is one host's view of it, with clocks and faults of its own.
package memlease

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Service is a lock service in memory. Its clock is the process's, so that it runs in virtual time inside a
// testing/synctest bubble. Make one with NewService.
type Service struct {
	saves   atomic.Uint64 // ever begun
	mu      sync.Mutex
	token   lease.Token // of the newest grant of any name, so that tokens survive the deletion of records
	locks   map[string]*record
	records map[string]lease.Record
	guarded map[string]entry
}

type record struct {
	holder, attempt string // empty holder: free
	token           lease.Token
	since, expires  time.Time
	value           []byte
	saved           uint64 // which Save wrote the value
	marks           lease.Marks
}

// NewService makes an empty service.
func NewService() *Service {
	return &Service{
		locks: map[string]*record{}, records: map[string]lease.Record{}, guarded: map[string]entry{},
	}
}

// Options are a store's options.
type Options struct {
	// Clock is the host's clocks. Default lease.SystemClock.
	Clock lease.Clock
	// Intercept stands between the store and the service, as a network does: it is given the operation ("acquire",
	// "renew", "release", "save", "inspect", "load", "swap", "list", "put", "get") and its effect. Tests use it to lose,
	// delay or repeat requests and answers. An error of its own that is no *lease.Error is of class lease.ErrInDoubt.
	// Default: call do.
	Intercept func(ctx context.Context, op string, do func() error) error
}

// Store is one host's view of a Service. It implements lease.Store, lease.Lister, lease.Records and lease.Clocked.
type Store struct {
	s   *Service
	opt Options
}

// New makes a store of a service of its own.
func New() *Store { return NewService().Store(nil) }

// Store makes a store of s. nil options are all defaults.
func (s *Service) Store(o *Options) *Store {
	st := &Store{s: s}
	if o != nil {
		st.opt = *o
	}
	if st.opt.Clock == nil {
		st.opt.Clock = lease.SystemClock
	}
	if st.opt.Intercept == nil {
		st.opt.Intercept = func(_ context.Context, _ string, do func() error) error { return do() }
	}
	return st
}

// Delete removes the record of a lock behind its holder's back, as an operator would. The next token is still higher.
func (s *Service) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.locks, name)
}

const storeName = "memory"

// Limits are 10 ms to 1 h, in any granularity.
func (s *Store) Limits() lease.Limits {
	return lease.Limits{Store: storeName, MinTTL: 10 * time.Millisecond, MaxTTL: time.Hour, Marks: true}
}

// Clock is the clock that the store was made with.
func (s *Store) Clock() lease.Clock { return s.opt.Clock }

// Close does nothing: a service in memory has nothing to give back.
func (s *Store) Close(context.Context) error { return nil }

// do runs f on the service, through the interceptor and under the lock. Errors get their place once. An interceptor may
// run f when its caller has given up, or twice: the first success counts.
func do[T any](ctx context.Context, s *Store, op, name string, f func() (T, error)) (T, error) {
	var got, none T
	if ctx.Err() != nil {
		return none, s.fail(op, name, lease.ErrUnavailable, lease.Cause(ctx))
	}
	answered := false
	var refusal error // by the service
	err := s.opt.Intercept(ctx, op, func() error {
		s.s.mu.Lock()
		defer s.s.mu.Unlock()
		v, err := f()
		if err == nil && !answered {
			got, answered = v, true
		}
		refusal = err
		return err
	})
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	if err == nil {
		return got, nil
	}
	if refusal != nil && errors.Is(err, refusal) {
		return none, err
	}
	if e, ok := err.(*lease.Error); ok { //nolint:errorlint // the interceptor's own; what it wraps may be a context's cause
		return none, s.fail(op, name, e.Class, e.Err)
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		err = lease.Cause(ctx)
	}
	return none, s.fail(op, name, lease.ErrInDoubt, err)
}

func (s *Store) fail(op, name string, class, err error) error {
	return &lease.Error{Op: op, Store: storeName, Name: name, Class: class, Err: err}
}

func (s *Store) lost(op, name string) error {
	return s.fail(op, name, lease.ErrLost, errors.New("it is another's or nobody's now"))
}

// TryAcquire implements lease.Store.
func (s *Store) TryAcquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	sent := s.opt.Clock()
	return do(ctx, s, "acquire", r.Name, func() (lease.Grant, error) {
		now := time.Now()
		rec := s.s.locks[r.Name]
		if rec == nil {
			rec = &record{}
		}
		if rec.attempt == r.Attempt && rec.holder != "" { // our own, whose answer was lost
			return s.grant(r, rec, r.Since), nil
		}
		if err := s.refuse(r, rec, now); err != nil {
			return lease.Grant{}, err
		}
		if s.s.token >= lease.MaxToken {
			return lease.Grant{}, s.fail("acquire", r.Name, lease.ErrMisconfigured, errors.New("the tokens are used up"))
		}
		s.s.token++
		next := &record{
			holder: r.Holder, attempt: r.Attempt, token: s.s.token, since: now, expires: now.Add(r.TTL),
			value: rec.value, marks: rec.marks,
		}
		next.marks.Running = 0
		if r.Mark != nil {
			next.marks.Started = max(rec.marks.Started, r.Mark.Occurrence)
			next.marks.Running = r.Mark.Occurrence
		}
		s.s.locks[r.Name] = next
		return s.grant(r, next, sent), nil
	})
}

// refuse says why r is not granted, nil if it is.
func (s *Store) refuse(r lease.Request, rec *record, now time.Time) error {
	if r.Mark != nil && time.Unix(r.Mark.Occurrence, 0).After(now.Add(lease.MaxAhead)) {
		return lease.Invalid("acquire", r.Name, "the occurrence %s is more than %v ahead of the service's clock",
			time.Unix(r.Mark.Occurrence, 0).UTC().Format(time.RFC3339), lease.MaxAhead)
	}
	alive := rec.holder != "" && now.Before(rec.expires)
	if r.Mark.Refuses(rec.marks) && !(alive && rec.marks.Running == r.Mark.Occurrence) {
		return &lease.PassedError{
			Name: r.Name, Occurrence: r.Mark.Occurrence, Marks: rec.marks, Token: rec.token,
			Value: slices.Clone(rec.value),
		}
	}
	if alive {
		return &lease.HeldError{
			Name: r.Name, Holder: rec.holder, Token: rec.token, RetryAfter: rec.expires.Sub(now), Marks: rec.marks,
		}
	}
	return nil
}

func (s *Store) grant(r lease.Request, rec *record, sent lease.Reading) lease.Grant {
	return lease.Grant{
		Request: r, Token: rec.token, Value: slices.Clone(rec.value), Marks: rec.marks, Expires: rec.expires,
		Sent: sent, Trust: r.TTL,
	}
}

// owned is the record of g's lock if g is its grant.
func (s *Store) owned(g lease.Grant) *record {
	rec := s.s.locks[g.Name]
	if rec == nil || rec.holder == "" || rec.attempt != g.Attempt || g.Token != 0 && rec.token != g.Token {
		return nil
	}
	return rec
}

// Renew implements lease.Store.
func (s *Store) Renew(ctx context.Context, g lease.Grant) (lease.Grant, error) {
	return s.renew(ctx, "renew", g, func(*record) {})
}

// Save implements lease.Store. It renews the lease as well. One that arrives when a later one has does not bring its value back.
func (s *Store) Save(ctx context.Context, g lease.Grant, value []byte) (lease.Grant, error) {
	n, value := s.s.saves.Add(1), slices.Clone(value)
	return s.renew(ctx, "save", g, func(rec *record) {
		if n >= rec.saved {
			rec.saved, rec.value = n, value
		}
	})
}

func (s *Store) renew(ctx context.Context, op string, g lease.Grant, change func(*record)) (lease.Grant, error) {
	sent := s.opt.Clock()
	return do(ctx, s, op, g.Name, func() (lease.Grant, error) {
		rec := s.owned(g)
		if rec == nil {
			return lease.Grant{}, s.lost(op, g.Name)
		}
		rec.expires = time.Now().Add(g.TTL)
		change(rec)
		renewed := g
		renewed.Sent, renewed.Trust, renewed.Expires = sent, g.TTL, rec.expires
		return renewed, nil
	})
}

// Release implements lease.Store.
func (s *Store) Release(ctx context.Context, g lease.Grant, f lease.Final) error {
	_, err := do(ctx, s, "release", g.Name, func() (struct{}, error) { return struct{}{}, s.release(g, f) })
	return err
}

func (s *Store) release(g lease.Grant, f lease.Final) error {
	rec := s.s.locks[g.Name]
	if rec != nil && rec.holder == "" && rec.attempt == g.Attempt {
		return nil // an earlier try of this release was stored
	}
	if rec = s.owned(g); rec == nil {
		if have := s.s.locks[g.Name]; have != nil && f.Marks != nil && f.Marks.Finished > g.Marks.Finished && have.marks.Finished >= f.Marks.Finished {
			return nil // released, and already held by the next
		}
		return s.lost("release", g.Name)
	}
	rec.holder = ""
	rec.marks.Running = 0
	if f.Marks != nil {
		rec.marks = lease.Marks{Started: f.Marks.Started, Finished: f.Marks.Finished}
	}
	if f.Value != nil {
		rec.value = slices.Clone(f.Value)
	}
	return nil
}

// Inspect implements lease.Store.
func (s *Store) Inspect(ctx context.Context, name string) (lease.Info, error) {
	return do(ctx, s, "inspect", name, func() (lease.Info, error) { return describe(name, s.s.locks[name]), nil })
}

func describe(name string, rec *record) lease.Info {
	if rec == nil {
		return lease.Info{Name: name, State: lease.Absent}
	}
	info := lease.Info{
		Name: name, State: lease.Free, Holder: rec.holder, Token: rec.token, Since: rec.since, Expires: rec.expires,
		Value: slices.Clone(rec.value), Marks: rec.marks,
	}
	switch {
	case rec.holder == "":
	case time.Now().Before(rec.expires):
		info.State = lease.Held
	default:
		info.State = lease.Dead
	}
	return info
}

// List implements lease.Lister, in the order of names.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[lease.Info, error] {
	return func(yield func(lease.Info, error) bool) {
		infos, err := do(ctx, s, "list", "", func() ([]lease.Info, error) {
			var infos []lease.Info
			for _, name := range slices.Sorted(maps.Keys(s.s.locks)) {
				if strings.HasPrefix(name, prefix) {
					infos = append(infos, describe(name, s.s.locks[name]))
				}
			}
			return infos, nil
		})
		if err != nil {
			yield(lease.Info{}, err)
			return
		}
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}
