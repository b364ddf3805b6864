package dynamolock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/internal/servertime"
	"github.com/cloudlease/cloudlease/lease"
)

// maxSteps bounds the requests of one attempt on a record that changes between them.
const maxSteps = 5

// TryAcquire implements lease.Store: one write on a free lock, one more (or a read) when the lock is new, dead, or its
// version is ahead of the service's clock. Without a good notion of that clock it reads first.
func (s *Store) TryAcquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	sight, known := s.lastSeen(r.Name)
	a := attempt{Store: s, Request: r, floor: sight.rec.version}
	now := s.clock()
	cold := !s.time.Known(now, min(servertime.MaxWidth, r.TTL*3/4)) // a wider interval leaves a short lease no trust
	blind := !cold && !(known && s.dead(sight, now) && !r.Mark.Refuses(sight.rec.marks))
	if err := a.checkAhead(now); err != nil {
		return lease.Grant{}, err
	}
	for step := 0; ; step++ {
		var err error
		switch {
		case step == maxSteps:
			return lease.Grant{}, &lease.Error{
				Op: "acquire", Store: place(s.table), Name: r.Name, Class: lease.ErrUnavailable,
				Err: errors.New("the record changed between all tries"), Hint: "try again",
			}
		case cold:
			cold = false
			sight, err = a.look(ctx)
		case blind:
			blind = false
			var g lease.Grant
			if g, sight, err = a.takeFree(ctx); err == nil && g.Token != 0 {
				return g, nil
			}
		default:
			var g lease.Grant
			if g, sight, err = a.takeSeen(ctx, sight.rec); err == nil && g.Token != 0 {
				return g, nil
			}
		}
		if err != nil {
			return lease.Grant{}, err
		}
		if g, done, err := a.judge(sight); done {
			return g, err
		}
	}
}

// attempt is one TryAcquire.
type attempt struct {
	*Store
	lease.Request
	floor lease.Token // the highest version that this store has seen of the record
}

// look reads the record.
func (a attempt) look(ctx context.Context) (sighting, error) {
	sight, err := a.load(ctx, "acquire", a.Name)
	if err != nil {
		return sight, err
	}
	if _, ok := a.time.Earliest(a.clock()); !ok {
		return sight, &lease.Error{
			Op: "acquire", Store: place(a.table), Name: a.Name, Class: lease.ErrMisconfigured,
			Err: errors.New("the service's answers carry no Date header"), Hint: "check what stands between this host and DynamoDB",
		}
	}
	return sight, nil
}

// judge says what the record that was just seen means for the attempt. done is false if it can be taken.
func (a attempt) judge(sight sighting) (g lease.Grant, done bool, err error) {
	now, rec := a.clock(), sight.rec
	if !rec.free() && rec.holder == holderOf(a.Request) { // our own, whose answer was lost
		return a.grant(rec, a.Since), true, nil
	}
	if err := a.checkAhead(now); err != nil {
		return g, true, err
	}
	dead := a.dead(sight, now)
	alive := !rec.absent() && !rec.free() && !dead
	if a.Mark.Refuses(rec.marks) && !(alive && rec.marks.Running == a.Mark.Occurrence) {
		return g, true, &lease.PassedError{
			Name: a.Name, Occurrence: a.Mark.Occurrence, Marks: rec.marks, Token: rec.version, Value: rec.value,
		}
	}
	if alive {
		return g, true, rec.held(a.untilDead(sight, now))
	}
	return g, false, nil
}

// checkAhead refuses an occurrence that would block all before it for ever.
func (a attempt) checkAhead(now lease.Reading) error {
	latest, ok := a.time.Latest(now)
	if a.Mark == nil || !ok {
		return nil
	}
	if at := time.Unix(a.Mark.Occurrence, 0); at.After(latest.Add(lease.MaxAhead)) {
		return lease.Invalid("acquire", a.Name, "the occurrence %s is more than %v ahead of the service's clock, %s",
			at.UTC().Format(time.RFC3339), lease.MaxAhead, latest.UTC().Format(time.RFC3339))
	}
	return nil
}

// takeFree writes without having looked: it passes only on an item that is free. The token follows the clock, or the version
// last seen where that was ahead. A refused write gives the record that refused it.
func (a attempt) takeFree(ctx context.Context) (lease.Grant, sighting, error) {
	w := a.write(a.floor)
	w.condition = "attribute_exists(#k) AND #h = :free AND #v < :v"
	w.names["#k"], w.values[":free"] = attrName, str("")
	if m := a.Mark; m != nil {
		started := "#s <= :occ"
		if m.AtMostOnce {
			started = "#s < :occ"
		}
		w.condition += " AND (attribute_not_exists(#f) OR #f < :occ) AND (attribute_not_exists(#s) OR " + started + ")"
		w.names["#f"], w.names["#s"] = attrFinished, attrStarted
	}
	return a.send(ctx, w)
}

// takeSeen writes on the condition that the record is as it was seen: absent, free or dead.
func (a attempt) takeSeen(ctx context.Context, rec record) (lease.Grant, sighting, error) {
	w := a.write(max(rec.version, a.floor))
	if rec.absent() {
		latest, _ := a.time.Latest(w.now)
		w.version = max(w.version, lease.Token(latest.Add(creationLead).UnixMilli())) //nolint:gosec // a date after 1970
		w.values[":v"] = num(w.version)
		w.condition, w.creates = "attribute_not_exists(#k)", true
		w.names["#k"] = attrName
		return a.send(ctx, w)
	}
	w.condition = "#n = :seen AND #v < :v"
	w.values[":seen"] = str(rec.nonce)
	if m := a.Mark; m != nil && rec.marks.Started > m.Occurrence {
		w.values[":occ"] = num(m.Occurrence)
		w.values[":started"] = num(rec.marks.Started) // a mark never goes down
		w.started = ":started"
	}
	return a.send(ctx, w)
}

// creationLead puts the first token of a record above every token that a deleted record of that name can have had, if that was
// made longer ago than the clock is uncertain.
const creationLead = 5 * time.Second

// grab is the write of an attempt.
type grab struct {
	now       lease.Reading
	version   lease.Token
	expires   int64
	creates   bool
	started   string // the value that "started" is set to
	condition string
	names     map[string]string
	values    item
}

// write begins the write that takes the lock: a token above seen and not below the service's clock, a lease from now on.
func (a attempt) write(seen lease.Token) *grab {
	now := a.clock()
	earliest, _ := a.time.Earliest(now)
	t := earliest.UnixMilli()
	w := &grab{now: now, version: max(seen+1, lease.Token(t)), expires: t + a.TTL.Milliseconds(), started: ":occ"} //nolint:gosec // after 1970
	w.names = map[string]string{
		"#v": attrVersion, "#h": attrHolder, "#n": attrNonce, "#e": attrExpires, "#l": attrTTL, "#i": attrSince,
		"#r": attrRunning,
	}
	w.values = item{
		":v": num(w.version), ":h": str(holderOf(a.Request)), ":n": str(newNonce()), ":e": num(w.expires),
		":l": num(a.TTL.Milliseconds()), ":i": num(t), ":occ": num[int64](0),
	}
	if a.Mark != nil {
		w.values[":occ"] = num(a.Mark.Occurrence)
		w.names["#s"] = attrStarted
	}
	return w
}

const (
	setGrant       = "SET #v = :v, #h = :h, #n = :n, #e = :e, #l = :l, #i = :i, #r = :occ"
	setMarkedGrant = setGrant + ", #s = "
)

// send sends w. If it is refused, the grant is zero and the sighting is what refused it.
func (a attempt) send(ctx context.Context, w *grab) (lease.Grant, sighting, error) {
	if w.version > lease.MaxToken {
		return lease.Grant{}, sighting{}, &lease.Error{
			Op: "acquire", Store: place(a.table), Name: a.Name, Class: lease.ErrMisconfigured,
			Err: fmt.Errorf("the tokens are used up: the last is %d", lease.MaxToken), Hint: "use another lock name",
		}
	}
	set := setGrant
	if a.Mark != nil {
		set = setMarkedGrant + w.started
	}
	attrs, err := a.update(ctx, &dynamodb.UpdateItemInput{
		Key: keyOf(a.Name), UpdateExpression: &set, ConditionExpression: &w.condition,
		ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err != nil {
		sight, err := a.refusedGrab(ctx, w, err)
		return lease.Grant{}, sight, err
	}
	rec, err := decode(a.Name, attrs)
	if err != nil || rec.holder != holderOf(a.Request) {
		return lease.Grant{}, sighting{}, a.foreign("acquire", a.Name, err)
	}
	a.saw(rec, a.clock())
	return a.grant(rec, w.now), sighting{}, nil
}

// refusedGrab is what refused w. DynamoDB returns the item that made a condition fail, so that none means that there is none;
// an engine that never returns it is found out when the creation is refused too.
func (a attempt) refusedGrab(ctx context.Context, w *grab, err error) (sighting, error) {
	it, conditional := refused(err)
	if !conditional || len(it) != 0 || a.mute.Load() {
		return a.refusal(ctx, "acquire", a.Name, err)
	}
	if w.creates {
		a.mute.Store(true)
		return a.load(ctx, "acquire", a.Name)
	}
	return sighting{rec: record{name: a.Name}}, nil
}

// grantOf makes a grant of our own record. Trust counts from the send, and ends by the service's clock where that is earlier.
func (s *Store) grantOf(r lease.Request, rec record, sent lease.Reading) lease.Grant {
	return lease.Grant{
		Request: r, Token: rec.version, Proof: rec.nonce, Value: rec.value, Marks: rec.marks,
		Expires: time.UnixMilli(rec.expires), Sent: sent, Trust: s.trust(sent, rec.expires, r.TTL),
	}
}

func (a attempt) grant(rec record, sent lease.Reading) lease.Grant {
	return a.grantOf(a.Request, rec, sent)
}

// trust is how long after sent a lease that ends at expires (ms) can be relied on: until the service's clock can have
// reached it, as is known now, and never longer than the TTL.
func (s *Store) trust(sent lease.Reading, expires int64, ttl time.Duration) time.Duration {
	latest, ok := s.time.Latest(sent)
	if !ok {
		return 0
	}
	return min(ttl, time.UnixMilli(expires).Sub(latest))
}

// refusal turns a failed write into the record that refused it, or into an error.
func (s *Store) refusal(ctx context.Context, op, name string, err error) (sighting, error) {
	it, conditional := refused(err)
	if !conditional {
		return sighting{}, fail(ctx, op, s.table, name, true, err)
	}
	if len(it) == 0 { // no item, or an engine that does not return it
		return s.load(ctx, op, name)
	}
	return s.sight(op, name, it)
}

// load reads the record of name.
func (s *Store) load(ctx context.Context, op, name string) (sighting, error) {
	it, err := s.get(ctx, name)
	if err != nil {
		return sighting{}, fail(ctx, op, s.table, name, false, err)
	}
	return s.sight(op, name, it)
}

func (s *Store) sight(op, name string, it item) (sighting, error) {
	rec, err := decode(name, it)
	if err != nil {
		return sighting{}, s.foreign(op, name, err)
	}
	if rec.absent() {
		s.forget(name)
		return sighting{rec: rec}, nil
	}
	return s.saw(rec, s.clock()), nil
}

func (s *Store) foreign(op, name string, err error) error {
	if err == nil {
		err = errors.New("the service's answer is not what was written")
	}
	return &lease.Error{
		Op: op, Store: place(s.table), Name: name, Class: lease.ErrMisconfigured, Err: err,
		Hint: "use a table of its own for locks, and remove the item once nobody needs it",
	}
}
