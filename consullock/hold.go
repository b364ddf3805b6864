package consullock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// hold is a lock that this store has, asks for, or had without having released it. It is guarded by Store.mu.
type hold struct {
	lease.Request
	ses     *session
	since   int64 // when it was first asked for, in ms on the service's clock
	busy    int   // tries of the acquire under way
	doubt   bool  // a try was not answered: it may still arrive
	granted bool
	asked   bool  // its holder does not want it any more
	leaves  bool  // and leaves something behind, in a release that may be tried again
	lost    error // why it is not the lock's grant any more
	told    bool  // its holder knows that, or others may have the lock anyway

	token  lease.Token
	index  uint64        // of the locked key
	proof  string        // Grant.Proof: proofOf its session and index
	given  lease.Reading // what its holder was last told that trust counts from
	proved lease.Reading // what the newest round vouches for
	proofs int           // how many have
	served int           // how many had when its holder was last told
	failed int           // how many of the session's failures its holder has been told

	kept      keptNote // what stays with the lock
	keptIndex uint64

	losses map[*context.CancelFunc]struct{} // of those who watch it
}

// liveLocked tells whether its holder may trust it, or hopes to get it. A holder that has lost it goes on trusting it until it is
// told: as long as the session has the key, nobody else gets it before.
func (h *hold) liveLocked(now lease.Reading) bool {
	switch {
	case h.told || h.asked:
		return false
	case h.busy > 0:
		return true
	case h.granted:
		return now.Fast(h.given) < h.TTL
	}
	return now.Fast(h.Since) < h.TTL // its caller tries again, or gives it back
}

// loseLocked ends it, for ever, and tells those who watch it. gone says that the session does not have the key any more.
func (h *hold) loseLocked(why error, gone bool) {
	if h.lost == nil {
		h.lost = why
	}
	h.told = h.told || gone
	for stop := range h.losses {
		(*stop)()
	}
	h.losses = nil
}

// maxDoubts bounds how many names a session is watched for, and doubtful how long: no request is under way for an hour.
const (
	maxDoubts = 256
	doubtful  = time.Hour
)

// doubt is a lock that a session may have without a hold.
type doubt struct {
	since    lease.Reading
	onTheWay bool // a request may still take it
}

// suspectLocked remembers that ses may have a lock. If there are too many, the oldest is forgotten.
func (s *Store) suspectLocked(ses *session, name string, onTheWay bool) {
	now := s.clock()
	if _, listed := ses.doubts[name]; !listed && len(ses.doubts) >= maxDoubts {
		oldest, age := "", time.Duration(-1)
		for other, d := range ses.doubts {
			if a := now.Slow(d.since); a > age {
				oldest, age = other, a
			}
		}
		delete(ses.doubts, oldest)
	}
	ses.doubts[name] = doubt{since: now, onTheWay: onTheWay || ses.doubts[name].onTheWay}
}

// dropLocked forgets a hold. What its session may have all the same is remembered by the session: a request may still arrive, or,
// if it mayHave, the key was not seen to be free.
func (s *Store) dropLocked(h *hold, mayHave bool) {
	if s.holds[h.Name] == h {
		delete(s.holds, h.Name)
	}
	if (h.doubt || mayHave) && h.ses != nil && !h.ses.dead {
		s.suspectLocked(h.ses, h.Name, h.doubt)
	}
}

func (s *Store) holdOfLocked(r lease.Request) *hold {
	if h := s.holds[r.Name]; h != nil && h.Attempt == r.Attempt {
		return h
	}
	return nil
}

// isOf tells whether it is this very grant, which another attempt or token is not.
func (h *hold) isOf(g lease.Grant) bool {
	return h.granted && h.token == g.Token && h.proof == g.Proof
}

// proofOf is Grant.Proof: the session and the index of the locked key.
func proofOf(ses *session, index uint64) string { return ses.id + " " + strconv.FormatUint(index, 10) }

func readProof(g lease.Grant) (session string, index uint64, err error) {
	session, digits, ok := strings.Cut(g.Proof, " ")
	index, err = strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return "", 0, lease.Invalid("read the grant of", g.Name, "its proof is not one of this store's")
	}
	return session, index, nil
}

// Renew implements lease.Store: two requests for all leases of one TTL together, one that renews the session and one that looks
// at the keys of up to 64 of them; none if a round that began within the last 2/9 of the TTL has looked at this one's key and
// has not served it yet. Trust counts from the beginning of the round.
func (s *Store) Renew(ctx context.Context, g lease.Grant) (lease.Grant, error) {
	const op = "renew"
	if err := storeerr.Sendable(ctx); err != nil {
		return lease.Grant{}, s.fail(ctx, op, g.Name, writing, err)
	}
	ses, renewed, err := s.serve(g, beat(g.TTL))
	for range maxRounds {
		if ses == nil {
			return renewed, err
		}
		failed := s.sharedFailure(g, ses)
		if failed == nil {
			failed = s.renewed(ctx, ses)
		}
		ses, renewed, err = s.serve(g, g.TTL) // also if it failed at another's key
		if ses != nil && failed != nil {
			s.toldFailure(g, ses)
			return lease.Grant{}, s.roundFailed(ctx, op, g.Name, failed)
		}
	}
	if ses == nil {
		return renewed, err
	}
	return lease.Grant{}, &lease.Error{
		Op: op, Store: s.place, Name: g.Name, Class: lease.ErrUnavailable, Err: errors.New("its key could not be seen"),
	}
}

// maxRounds is how many rounds one renewal waits for: one that is joined may have begun before the lease.
const maxRounds = 2

// serve gives g the newest proof that it has not had, if that is younger than age, or the session to renew.
func (s *Store) serve(g lease.Grant, age time.Duration) (*session, lease.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holdOfLocked(g.Request)
	if h != nil && h.granted && h.ses.dead { // that was seen while the answer of the lock was under way
		h.loseLocked(errSessionOver, true)
	}
	switch {
	case h == nil || !h.granted:
		return nil, lease.Grant{}, s.lost("renew", g.Name, errSessionOver)
	case h.lost != nil:
		h.told = true
		return nil, lease.Grant{}, s.lost("renew", g.Name, h.lost)
	case !h.isOf(g):
		return nil, lease.Grant{}, s.lost("renew", g.Name, fmt.Errorf("the lock has token %d now", h.token))
	case h.proofs > h.served && s.clock().Fast(h.proved) <= age:
		h.served = h.proofs
		if now := s.clock(); now.Fast(h.proved) < now.Fast(h.given) { // otherwise the holder goes by what it was told before
			h.given = h.proved
		}
		g.Sent, g.Trust = h.proved, h.TTL
		return nil, g, nil
	}
	return h.ses, lease.Grant{}, nil
}

// failureShared is how long a failed round answers for the renewals of those who have not been told yet: below the pause between
// two tries of one of them.
const failureShared = 150 * time.Millisecond

func (s *Store) sharedFailure(g lease.Grant, ses *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holdOfLocked(g.Request)
	if h == nil || ses.failure == nil || h.failed >= ses.failures || s.clock().Fast(ses.failedAt) > failureShared {
		return nil
	}
	return ses.failure
}

func (s *Store) toldFailure(g lease.Grant, ses *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holdOfLocked(g.Request); h != nil {
		h.failed = ses.failures
	}
}

// roundFailed is the error of one lease of a round that failed. A renewal that was not answered is in doubt.
func (s *Store) roundFailed(ctx context.Context, op, name string, err error) error {
	k := sessions
	if failed, ok := errors.AsType[*roundError](err); ok {
		k, err = failed.kind, failed.err
	}
	if e, ok := err.(*lease.Error); ok { //nolint:errorlint // one of this package's, not one that it wraps
		told := *e
		told.Name, told.Op = name, op
		return &told
	}
	failed := s.fail(ctx, op, name, k, err)
	class, _ := classify(ctx, err)
	if e, ok := errors.AsType[*lease.Error](failed); ok && errors.Is(class, errUnanswered) {
		e.Class = lease.ErrInDoubt
	}
	return failed
}

// Save implements lease.Store: one request. It does not renew.
func (s *Store) Save(ctx context.Context, g lease.Grant, value []byte) (lease.Grant, error) {
	const op = "save"
	session, index, err := readProof(g)
	if err != nil {
		return lease.Grant{}, err
	}
	for range maxSteps {
		kept, keptIndex, err := s.keptOf(ctx, op, g)
		if err != nil {
			return lease.Grant{}, err
		}
		kept.Value = value
		results, refused, err := s.txn(ctx, api.TxnOps{
			opUnchanged(s.lockPath(g.Name), index), opCheckSession(s.lockPath(g.Name), session),
			opUnchanged(s.keptPath(g.Name), keptIndex), opSet(s.keptPath(g.Name), encode(kept)),
		})
		switch {
		case err != nil:
			return lease.Grant{}, s.fail(ctx, op, g.Name, writing, err)
		case len(refused) == 0:
			pairs := pairsOf(results)
			s.keeps(g, kept, pairs[len(pairs)-1].ModifyIndex)
			return g, nil
		case concerns(refused, 0, 1) && !says(refused, denials...):
			return lease.Grant{}, s.judgeLost(ctx, op, g)
		case !concerns(refused, 2) || says(refused, denials...):
			return lease.Grant{}, s.refusal(op, g.Name, refused)
		}
		s.keepsUnknown(g) // an earlier save was stored and not answered
	}
	return lease.Grant{}, &lease.Error{
		Op: op, Store: s.place, Name: g.Name, Class: lease.ErrUnavailable, Err: errors.New("what is kept with it changed between all tries"),
	}
}

// keptOf is what is kept with the lock of g as g's last write left it, or as it is read.
func (s *Store) keptOf(ctx context.Context, op string, g lease.Grant) (keptNote, uint64, error) {
	s.mu.Lock()
	if h := s.holdOfLocked(g.Request); h != nil && h.isOf(g) && h.keptIndex != unknownIndex {
		defer s.mu.Unlock()
		return h.kept, h.keptIndex, nil
	}
	s.mu.Unlock()
	rec, err := s.look(ctx, op, g.Name)
	if err != nil {
		return keptNote{}, 0, err
	}
	switch {
	case rec.note.Attempt != g.Attempt || rec.token() != g.Token:
		return keptNote{}, 0, s.lost(op, g.Name, rec.whyLost())
	case rec.fault != nil:
		return keptNote{}, 0, s.foreign(op, g.Name, rec.fault)
	}
	return rec.keep, index(rec.kept), nil
}

// unknownIndex is that of a key that may have been written since.
const unknownIndex = ^uint64(0)

func (s *Store) keeps(g lease.Grant, kept keptNote, index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holdOfLocked(g.Request); h != nil {
		h.kept, h.keptIndex = kept, index
	}
}

func (s *Store) keepsUnknown(g lease.Grant) { s.keeps(g, keptNote{}, unknownIndex) }

// judgeLost reads why the key of g is not as it was locked.
func (s *Store) judgeLost(ctx context.Context, op string, g lease.Grant) error {
	rec, err := s.look(ctx, op, g.Name)
	if err != nil {
		return err
	}
	session, index, _ := readProof(g)
	if rec.held() && rec.lock.Session == session && rec.lock.ModifyIndex == index {
		return &lease.Error{Op: op, Store: s.place, Name: g.Name, Class: lease.ErrUnavailable, Err: fmt.Errorf("the service contradicts itself")}
	}
	why := rec.whyLost()
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holdOfLocked(g.Request); h != nil {
		h.loseLocked(why, true)
	}
	return s.lost(op, g.Name, why)
}
