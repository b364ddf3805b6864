package bloblease

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"

	"github.com/cloudlease/cloudlease/internal/escape"
	"github.com/cloudlease/cloudlease/lease"
)

// maxSteps bounds the tries of one attempt on a blob that changes between them.
const maxSteps = 5

// creationLead puts the first token of a blob above those that a deleted blob of that name can have had.
const creationLead = 2 * time.Second

// claim is a token that an attempt has written, and the blob's state by that write.
type claim struct {
	token lease.Token
	etag  azcore.ETag
	note  note                // as the blob has it now
	lease *azlease.BlobClient // once the lease was asked for
}

// leaseID is the id of the lease that goes with a claim. It is a function of attempt and token, so that a retry asks for the
// same lease, and the service itself refuses whoever has the attempt but another token.
func leaseID(attempt string, token lease.Token) string {
	seed := append(make([]byte, 0, 64), "cloudlease "...)
	seed = append(append(seed, attempt...), ' ')
	sum := sha256.Sum256(strconv.AppendUint(seed, uint64(token), 10))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // a custom UUID, version 8
	id := make([]byte, 0, 36)
	for i, b := range sum[:16] {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			id = append(id, '-')
		}
		id = append(id, lowerHex[b>>4], lowerHex[b&15])
	}
	return string(id)
}

// attempt is one TryAcquire.
type attempt struct {
	*Store
	lease.Request
	sent lease.Reading // where trust begins
}

// TryAcquire implements lease.Store. On a lock that this store has seen free: a claim and a lease, three requests (two with
// NoHolder or MetadataTokens). Otherwise the blob is read first, so that a held lock costs one request and names its holder.
func (s *Store) TryAcquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	if err := s.checkRequest(r); err != nil {
		return lease.Grant{}, err
	}
	a := attempt{Store: s, Request: r, sent: r.Since}
	if a.sent.IsZero() {
		a.sent = s.clock()
	}
	if c, ok := s.claimed(r); ok { // a retry whose first try came as far as asking for the lease
		if g, taken, err := a.take(ctx, c); taken || err != nil {
			return g, err
		}
		s.forget(r.Name)
	}
	return a.run(ctx)
}

func (s *Store) checkRequest(r lease.Request) error {
	if r.TTL < MinTTL || r.TTL > MaxTTL || r.TTL%time.Second != 0 {
		return lease.Invalid("acquire", r.Name, "the TTL %v is not one of %v to %v in whole seconds, which is what Azure leases for", r.TTL, MinTTL, MaxTTL)
	}
	return nil
}

// run looks, claims and leases until one of them decides.
func (a attempt) run(ctx context.Context) (lease.Grant, error) {
	rec, known := a.lastSeen(a.Name)
	looked := false
	for range maxSteps {
		if !known || rec.locked() || a.Mark != nil {
			var err error
			if rec, err = a.look(ctx); err != nil {
				return lease.Grant{}, err
			}
			looked = true
		}
		c, err := a.claim(ctx, rec)
		if err == nil {
			g, taken, err := a.take(ctx, c)
			if taken || err != nil {
				return g, err
			}
		}
		if e, ok := made(err); ok {
			return lease.Grant{}, e
		}
		class, _ := judge(ctx, taking, err)
		switch {
		case err != nil && !errors.Is(class, lease.ErrHeld) && !errors.Is(class, errChanged):
			return lease.Grant{}, a.fail(ctx, "acquire", a.Name, taking, err)
		case a.Mark == nil && (err == nil || looked || errors.Is(class, lease.ErrHeld)):
			// Overtaken since the look, or held: whose it is would cost a request more. Not so for an occurrence, whose
			// refusal depends on which one runs.
			a.forget(a.Name)
			return lease.Grant{}, &lease.HeldError{Name: a.Name}
		}
		known = false
	}
	return lease.Grant{}, &lease.Error{
		Op: "acquire", Store: a.place, Name: a.Name, Class: lease.ErrUnavailable,
		Err: errors.New("others took the lock between all tries"), Hint: "try again",
	}
}

// look reads the blob and says what it means for the attempt. No error: it can be claimed.
func (a attempt) look(ctx context.Context) (record, error) {
	rec, err := a.load(ctx, "acquire", a.Name)
	if err != nil {
		return rec, err
	}
	if rec.fault != nil {
		return rec, a.foreign("acquire", a.Name, rec.fault)
	}
	if err := a.checkAhead(); err != nil {
		return rec, err
	}
	m, held := rec.marks(), rec.held()
	if a.Mark.Refuses(m) && !(held && m.Running == a.Mark.Occurrence) {
		return rec, &lease.PassedError{
			Name: a.Name, Occurrence: a.Mark.Occurrence, Marks: m, Token: rec.token, Value: rec.note.value,
		}
	}
	if held {
		return rec, rec.heldError()
	}
	if rec.given() && rec.locked() { // help its holder to the end of its release
		err := a.unlease(ctx, a.Name, rec.note.freed)
		if class, _ := judge(ctx, holding, err); err != nil && !errors.Is(class, lease.ErrLost) {
			return rec, a.fail(ctx, "acquire", a.Name, taking, err)
		}
	}
	return rec, nil
}

// checkAhead refuses an occurrence that would block all before it for ever.
func (a attempt) checkAhead() error {
	if a.Mark == nil {
		return nil
	}
	latest, ok := a.time.Latest(a.clock())
	if at := time.Unix(a.Mark.Occurrence, 0); ok && at.After(latest.Add(lease.MaxAhead)) {
		return lease.Invalid("acquire", a.Name, "the occurrence %s is more than %v ahead of the service's clock, %s",
			at.UTC().Format(time.RFC3339), lease.MaxAhead, latest.UTC().Format(time.RFC3339))
	}
	return nil
}

// next is the token of a claim on rec: above the last one, and not below the service's time, so that it also lies above those
// that an older copy of the blob, which a failover or a restore has brought back, knows nothing of.
func (a attempt) next(rec record) (lease.Token, int64, error) {
	earliest, latest, ok := a.time.Interval(a.clock())
	if !ok {
		return 0, 0, &lease.Error{
			Op: "acquire", Store: a.place, Name: a.Name, Class: lease.ErrMisconfigured,
			Err: errors.New("the answers carry no Date header, or no x-ms-request-id to show that they are the service's"), Hint: "check what stands between this host and the service",
		}
	}
	token := max(rec.token+1, lease.Token(earliest.UnixMilli())) //nolint:gosec // after 1970
	if rec.absent() {
		token = lease.Token(latest.Add(creationLead).UnixMilli()) //nolint:gosec // after 1970
	}
	if token > lease.MaxToken {
		return 0, 0, &lease.Error{
			Op: "acquire", Store: a.place, Name: a.Name, Class: lease.ErrMisconfigured,
			Err: fmt.Errorf("the tokens are used up: the last is %d", lease.MaxToken), Hint: "use another lock name",
		}
	}
	return token, earliest.UnixMilli(), nil
}

// claim writes the next token, and whose it is, on the condition that the blob is as it was seen and not leased. It gives
// nobody the lock: the lease does.
func (a attempt) claim(ctx context.Context, rec record) (claim, error) {
	token, now, err := a.next(rec)
	if err != nil {
		return claim{}, err
	}
	n := rec.note
	n.token, n.since, n.freed = token, now, ""
	n.marks, n.holder = rec.marks(), a.Holder
	n.before, n.marks.Running = n.marks.Started, 0
	if a.opt.NoHolder {
		n.holder = ""
	}
	if a.Mark != nil {
		n.marks.Running = a.Mark.Occurrence
		n.marks.Started = max(n.marks.Started, a.Mark.Occurrence)
	}
	c := claim{token: token, etag: rec.etag, note: rec.note}
	switch {
	case rec.absent():
		c.etag, err = a.create(ctx, a.Name, n)
		c.note = n
		return c, err
	case a.opt.MetadataTokens && rec.pending():
		if c.etag, err = a.settle(ctx, rec); err != nil {
			return c, err
		}
	case !a.opt.MetadataTokens:
		if c.etag, err = a.setNumber(ctx, a.Name, token, c.etag); err != nil {
			return c, err
		}
		if a.opt.NoHolder && a.Mark == nil && rec.marks() == rec.note.marks {
			return c, nil
		}
	}
	if rec.pending() && a.clock().Fast(rec.looked) >= MinTTL {
		return c, errChanged
	}
	c.note = n
	c.etag, err = a.annotate(ctx, a.Name, n, conditions("", c.etag))
	return c, err
}

// settle writes a new version of a blob whose claim is pending, so that the claim cannot be leased any more. Until the attempt's
// own claim says otherwise the occurrence counts as started: if this write was slow, the claim may have been leased, and that
// lease have ended, before it. With sequence numbers the new number does the same.
func (a attempt) settle(ctx context.Context, rec record) (azcore.ETag, error) {
	n := rec.note
	n.settled()
	return a.annotate(ctx, a.Name, n, conditions("", rec.etag))
}

// take asks for the lease on the condition that nobody has claimed the lock since. taken is false if somebody has.
func (a attempt) take(ctx context.Context, c claim) (g lease.Grant, taken bool, err error) {
	id, etag := leaseID(a.Attempt, c.token), c.etag
	client, err := a.leaseClient(a.Name, id)
	if err != nil {
		return g, false, err
	}
	c.lease = client
	a.claiming(a.Request, c)
	header, err := a.send(ctx, func(ctx context.Context) error {
		_, err := client.AcquireLease(ctx, int32(a.TTL/time.Second), &azlease.BlobAcquireOptions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag},
		})
		return err
	})
	if err != nil {
		class, _ := judge(ctx, taking, err)
		if !errors.Is(class, lease.ErrInDoubt) {
			a.unclaim(a.Request)
		}
		if errors.Is(class, lease.ErrHeld) || errors.Is(class, errChanged) {
			return g, false, nil
		}
		return g, false, a.fail(ctx, "acquire", a.Name, taking, err)
	}
	if etag := azcore.ETag(header.Get("ETag")); etag != "" {
		c.etag = etag
	}
	rec := record{name: a.Name, etag: c.etag, token: c.token, state: azlease.StateTypeLeased, note: c.note}
	a.saw(rec)
	return lease.Grant{
		Request: a.Request, Token: c.token, Proof: id, Value: c.note.value, Marks: rec.marks(), Sent: a.sent, Trust: a.TTL,
	}, true, nil
}

// conditions are those of a write: under a lease, or on a blob as it was seen, or both.
func conditions(leaseID string, etag azcore.ETag) *blob.AccessConditions {
	c := &blob.AccessConditions{}
	if leaseID != "" {
		c.LeaseAccessConditions = &blob.LeaseAccessConditions{LeaseID: &leaseID}
	}
	if etag != "" {
		c.ModifiedAccessConditions = &blob.ModifiedAccessConditions{IfMatch: &etag}
	}
	return c
}

// create makes the blob of a name that has none.
func (s *Store) create(ctx context.Context, name string, n note) (azcore.ETag, error) {
	absent := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)}}
	header, err := s.send(ctx, func(ctx context.Context) error {
		if s.opt.MetadataTokens {
			return putEmpty(ctx, s.api.NewBlockBlobClient(s.lockPrefix()+escape.Name(name)), n.metadata(), absent)
		}
		_, err := s.blob(name).Create(ctx, pageblob.PageBytes, &pageblob.CreateOptions{
			SequenceNumber: new(int64(n.token)), Metadata: n.metadata(), AccessConditions: absent, //nolint:gosec // below 2^53
		})
		return err
	})
	return azcore.ETag(header.Get("ETag")), err
}

// setNumber sets the sequence number of a blob that is as it was seen.
func (s *Store) setNumber(ctx context.Context, name string, token lease.Token, seen azcore.ETag) (azcore.ETag, error) {
	header, err := s.send(ctx, func(ctx context.Context) error {
		_, err := s.blob(name).UpdateSequenceNumber(ctx, &pageblob.UpdateSequenceNumberOptions{
			ActionType:     new(pageblob.SequenceNumberActionTypeUpdate),
			SequenceNumber: new(int64(token)), AccessConditions: conditions("", seen), //nolint:gosec // below 2^53
		})
		return err
	})
	return azcore.ETag(header.Get("ETag")), err
}

// annotate replaces the blob's metadata.
func (s *Store) annotate(ctx context.Context, name string, n note, c *blob.AccessConditions) (azcore.ETag, error) {
	header, err := s.send(ctx, func(ctx context.Context) error {
		_, err := s.blob(name).SetMetadata(ctx, n.metadata(), &blob.SetMetadataOptions{AccessConditions: c})
		return err
	})
	return azcore.ETag(header.Get("ETag")), err
}

// leaseOf is a client of g's lease, and the lease's id.
func (s *Store) leaseOf(g lease.Grant) (*azlease.BlobClient, string, error) {
	if c, asked := s.claimed(g.Request); asked && c.token == g.Token {
		return c.lease, *c.lease.LeaseID(), nil
	}
	id := leaseID(g.Attempt, g.Token)
	client, err := s.leaseClient(g.Name, id)
	return client, id, err
}

func (s *Store) leaseClient(name, id string) (*azlease.BlobClient, error) {
	client, err := azlease.NewBlobClient(s.blob(name), &azlease.BlobClientOptions{LeaseID: &id})
	if err != nil { // the SDK makes an id of its own otherwise; with one there is nothing to fail
		return nil, lease.Invalid("lease", name, "%w", err)
	}
	return client, nil
}
