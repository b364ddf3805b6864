package consullock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// attempt is one try of a TryAcquire.
type attempt struct {
	*Store
	lease.Request
	hold          *hold
	folder, floor string // of its keys
}

// TryAcquire implements lease.Store: one transaction, which locks the key, writes whose it is and reads what is kept with it. The
// first call makes the session before; so does one that follows a pause in which the session ended, and one that finds it
// older than half a TTL renews it. An occurrence (Request.Mark) is decided by one read, and one transaction more if it is
// granted. A name that this store has already, or asks for, is refused without asking
// for it: Consul would let its session in.
func (s *Store) TryAcquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	const op = "acquire"
	if r.TTL < s.opt.MinTTL || r.TTL > MaxTTL {
		return lease.Grant{}, lease.Invalid(op, r.Name, "the TTL %v is not within %v to %v (Options.MinTTL says what the servers' session_ttl_min is)", r.TTL, s.opt.MinTTL, MaxTTL)
	}
	if err := storeerr.Sendable(ctx); err != nil {
		return lease.Grant{}, s.fail(ctx, op, r.Name, writing, err)
	}
	if r.Since.IsZero() {
		r.Since = s.clock()
	}
	for range 2 {
		h, err := s.claim(ctx, r)
		if err != nil {
			return lease.Grant{}, err
		}
		a := attempt{s, r, h, s.lockFolder(r.Name), s.floorFolder(r.Name)}
		g, err := a.run(ctx)
		if err == nil {
			g, err = a.refresh(ctx, g)
		}
		s.tried(h, err)
		if !errors.Is(err, lease.ErrLost) {
			return g, err
		}
	}
	return lease.Grant{}, s.noSession(ctx, r.Name, errSessionOver) // it ended each time before the grant could be handed out
}

// claim enters an attempt into the table of what this store has, or refuses it. What the store believes to have and nobody watches
// may have been taken away: then one read decides.
func (s *Store) claim(ctx context.Context, r lease.Request) (*hold, error) {
	for range maxSteps {
		h, unsure, err := s.enter(r)
		if unsure == nil {
			return h, err
		}
		if s.confirm(ctx, unsure) != nil || s.isLive(unsure) {
			return nil, err
		}
	}
	return nil, &lease.HeldError{Name: r.Name}
}

func (s *Store) isLive(h *hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.liveLocked(s.clock())
}

func (s *Store) enter(r lease.Request) (h, unsure *hold, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, s.closedError("acquire", r.Name)
	}
	h = s.holds[r.Name]
	switch {
	case h == nil:
	case h.Attempt == r.Attempt && h.lost == nil && !h.asked: // a retry
		h.busy++
		return h, nil, nil
	case h.busy > 0 || h.granted && h.liveLocked(s.clock()):
		held := &lease.HeldError{Name: r.Name, Holder: h.Holder, Token: h.token}
		if h.busy == 0 && len(h.losses) == 0 && h.lost == nil {
			return nil, h, held
		}
		return nil, nil, held
	default:
		s.dropLocked(h, h.granted)
	}
	h = &hold{Request: r, busy: 1}
	s.holds[r.Name] = h
	return h, nil, nil
}

// tried takes note of how a try ended.
func (s *Store) tried(h *hold, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.busy--
	switch {
	case err == nil || h.granted:
	case errors.Is(err, lease.ErrInDoubt):
		h.doubt = true
	case h.doubt && errors.Is(err, lease.ErrUnavailable):
		// An earlier try may have the key as the next will lock it, with the index that an unlock by a round would ask for: no
		// round must think that it was given up.
	case h.busy == 0:
		s.dropLocked(h, false)
	}
}

// refresh renews the session of a new grant if that was done long ago, because nothing was held: trust counts from there. If
// that fails, the grant is given as it is while it is worth something.
func (a attempt) refresh(ctx context.Context, g lease.Grant) (lease.Grant, error) {
	if a.clock().Fast(g.Sent) <= a.TTL/2 || a.clock().Fast(a.Since) > a.TTL/2 {
		return g, nil
	}
	renewed, err := a.Renew(ctx, g)
	switch {
	case err == nil:
		if now := a.clock(); now.Fast(a.Since) > now.Fast(renewed.Sent) {
			renewed.Sent = a.Since
		}
		return renewed, nil
	case errors.Is(err, lease.ErrLost):
		return g, err
	case a.clock().Fast(g.Sent) < a.TTL:
		return g, nil
	}
	return lease.Grant{}, &lease.Error{
		Op: "acquire", Store: a.place, Name: a.Name, Class: lease.ErrInDoubt,
		Err: fmt.Errorf("it was granted by a session that could not be renewed: %s", err.Error()),
	}
}

func (a attempt) run(ctx context.Context) (lease.Grant, error) {
	for range maxSteps {
		var seen *record
		if a.Mark != nil {
			rec, err := a.decide(ctx)
			if err != nil {
				return lease.Grant{}, err
			}
			seen = &rec
		}
		ses, sent, err := a.session(ctx, a.Request)
		if err != nil {
			return lease.Grant{}, err
		}
		a.mu.Lock()
		a.hold.ses = ses
		a.mu.Unlock()
		ops, checks := a.ops(ses, seen)
		results, refused, err := a.txn(ctx, ops)
		switch {
		case err != nil:
			return lease.Grant{}, a.fail(ctx, "acquire", a.Name, writing, err)
		case len(refused) == 0:
			return a.granted(ctx, ses, sent, pairsOf(results)[checks:])
		case says(refused, "invalid session"):
			a.died(ses)
		case seen != nil && says(refused, changes...):
		default:
			return lease.Grant{}, a.refused(ctx, ses, seen, refused)
		}
	}
	return lease.Grant{}, &lease.Error{
		Op: "acquire", Store: a.place, Name: a.Name, Class: lease.ErrUnavailable,
		Err: errors.New("the lock or the session changed between all tries"), Hint: "try again",
	}
}

// decide reads the lock and says what it means for an occurrence. No error: it can be asked for, as it is.
func (a attempt) decide(ctx context.Context) (record, error) {
	rec, err := a.look(ctx, "acquire", a.Name)
	if err != nil {
		return rec, err
	}
	if rec.fault != nil {
		return rec, a.foreign("acquire", a.Name, rec.fault)
	}
	latest, ok := a.time.Latest(a.clock())
	if at := time.Unix(a.Mark.Occurrence, 0); ok && at.After(latest.Add(lease.MaxAhead)) {
		return rec, lease.Invalid("acquire", a.Name, "the occurrence %s is more than %v ahead of the service's clock, %s",
			at.UTC().Format(time.RFC3339), lease.MaxAhead, latest.UTC().Format(time.RFC3339))
	}
	m := rec.marks()
	switch {
	case rec.current() && rec.held() && rec.note.Attempt == a.Attempt: // an earlier try was stored
		return rec, nil
	case a.Mark.Refuses(m) && !(rec.held() && m.Running == a.Mark.Occurrence):
		return rec, &lease.PassedError{
			Name: a.Name, Occurrence: a.Mark.Occurrence, Marks: m, Token: rec.token(), Value: rec.keep.Value,
		}
	case rec.held():
		return rec, rec.heldError()
	}
	return rec, nil
}

// ops is the transaction that locks. With what was seen it passes only while that is so.
func (a attempt) ops(ses *session, seen *record) (ops api.TxnOps, checks int) {
	by := grantNote{
		Attempt: a.Attempt, Holder: a.Holder, LockDelay: ses.delay.Milliseconds(), Datacenter: a.dc,
		Since: a.sinceOf(a.hold),
	}
	var keep []byte
	if seen != nil {
		for key, p := range map[string]*api.KVPair{a.folder + lockKey: seen.lock, a.folder + keptKey: seen.kept} {
			ops = append(ops, opUnchanged(key, index(p)))
			if p != nil {
				checks++
			}
		}
		started := max(seen.keep.Started, a.Mark.Occurrence)
		by.Running, by.Before = a.Mark.Occurrence, seen.keep.Started
		if seen.note.Attempt == a.Attempt { // the retry writes what its first try wrote
			by.Before = seen.by.Before
		}
		kept := seen.keep
		kept.Started = started
		keep = encode(kept)
	}
	ops = append(ops,
		opTree(a.folder), opTree(a.floor),
		opLock(a.folder+lockKey, ses.id, encode(lockNote{Attempt: a.Attempt, Since: by.Since})), opSet(a.folder+grantKey, encode(by)))
	if keep != nil {
		ops = append(ops, opSet(a.folder+keptKey, keep))
	}
	return ops, checks
}

// sinceOf is when a hold was first asked for, on the service's clock: the same for all tries, because a second write that is the
// same as the first leaves the token as it is.
func (s *Store) sinceOf(h *hold) int64 {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.since == 0 && !now.IsZero() {
		h.since = now.UnixMilli()
	}
	return h.since
}

// refused says why the transaction was not done.
func (a attempt) refused(ctx context.Context, ses *session, seen *record, refused api.TxnErrors) error {
	switch {
	case says(refused, "lock delay"):
		return a.delayed(ses, seen)
	case says(refused, "already held"):
		return a.heldByAnother(ctx)
	}
	err := a.refusal("acquire", a.Name, refused)
	if e, ok := errors.AsType[*lease.Error](err); ok && errors.Is(e.Class, lease.ErrDenied) {
		if left := a.endIfIdle(ctx, ses, a.hold); left != nil {
			e.Err = fmt.Errorf("%w; %s", e.Err, left.Error())
		}
	}
	return err
}

func (a attempt) heldByAnother(ctx context.Context) error {
	a.undelayed(a.Name)
	if !a.opt.NameHolder || a.polling(a.Name) { // who polls was told
		return &lease.HeldError{Name: a.Name}
	}
	rec, err := a.look(ctx, "acquire", a.Name)
	if err != nil || !rec.held() {
		return &lease.HeldError{Name: a.Name} // it was held, and that is what was asked
	}
	return rec.heldError()
}

// delayed is the refusal of a lock whose last session ended without a release. Consul does not say how long the delay lasts;
// it began before this store saw it first.
func (a attempt) delayed(ses *session, seen *record) error {
	left := a.sawDelay(a.Name, ses.delay)
	held := &lease.HeldError{Name: a.Name, RetryAfter: left}
	if seen != nil {
		held.Marks = seen.marks()
	}
	return &lease.Error{
		Op: "acquire", Store: a.place, Name: a.Name, Class: lease.ErrHeld, Err: held,
		Hint: fmt.Sprintf("nobody holds it: its last session ended without a release, and Consul's lock-delay goes on for %v or less", left.Round(time.Millisecond)),
	}
}
