package bloblease

import (
	"encoding/base64"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/cloudlease/cloudlease/lease"
)

// record is a lock's blob as it was seen. Its zero etag means that there is none.
type record struct {
	name     string
	etag     azcore.ETag
	token    lease.Token // of the newest claim
	state    azlease.StateType
	infinite bool // somebody else's lease: this library asks for none
	note     note
	fault    error         // why the note cannot be read; the note is empty then
	looked   lease.Reading // when it was asked for
}

func (r record) absent() bool { return r.etag == "" }

// locked tells whether the service refuses to lease the blob to another.
func (r record) locked() bool {
	return r.state == azlease.StateTypeLeased || r.state == azlease.StateTypeBreaking
}

// current tells whether the note is that of the newest claim.
func (r record) current() bool { return r.note.token == r.token && r.token != 0 }

// given tells whether the holder has given the lock up, although the service still has its lease.
func (r record) given() bool { return r.current() && r.note.freed != "" && !r.infinite }

// held tells whether somebody holds the lock.
func (r record) held() bool { return r.locked() && !r.given() }

// holder is who holds the lock, or held it when it died.
func (r record) holder() string {
	switch {
	case r.infinite && r.locked():
		return "unknown (a lease without an end, which this library does not make)"
	case r.current():
		return r.note.holder
	}
	return ""
}

// marks are the occurrences as they stand. A claim is written before its lease is taken; one that was never leased has started
// nothing. That it was never leased is sure while the blob's lease is available: a marked grant that ends by a release leaves
// another note, and one that ends otherwise another state.
func (r record) marks() lease.Marks {
	m := r.note.marks
	switch {
	case m.Running == 0:
	case !r.current():
		m.Running = 0
	case r.pending():
		m.Started, m.Running = r.note.before, 0
	}
	return m
}

// pending tells whether the note is a claim of an occurrence whose lease had not been taken when it was looked at. It may have
// been since, and may have ended since, without a trace: operations on a lease change neither the ETag nor the note.
func (r record) pending() bool {
	return r.current() && r.note.marks.Running != 0 && r.state == azlease.StateTypeAvailable
}

// unexplained tells whether the grant that has token was broken and nobody has said why, such as by a Break whose answer was
// lost.
func (r record) unexplained(token lease.Token) bool {
	return r.state == azlease.StateTypeBroken && r.token == token && (r.note.broken == nil || r.note.broken.Token != token)
}

// settled makes n the note of a claim that counts as started, whether or not it was leased.
func (n *note) settled() { n.marks.Running, n.before = 0, n.marks.Started }

// heldError describes r to those who cannot have it.
func (r record) heldError() *lease.HeldError {
	h := &lease.HeldError{Name: r.name, Holder: r.holder(), Marks: r.marks()}
	if r.current() && !r.infinite {
		h.Token = r.token
	}
	return h
}

func (r record) describe() lease.Info {
	info := lease.Info{Name: r.name, State: lease.Free}
	if r.absent() {
		info.State = lease.Absent
		return info
	}
	info.Token, info.Value, info.Marks, info.Broken = r.token, r.note.value, r.marks(), r.note.broken
	if r.current() && r.note.since > 0 {
		info.Since = time.UnixMilli(r.note.since)
	}
	switch {
	case r.held():
		info.State, info.Holder = lease.Held, r.holder()
	case r.state == azlease.StateTypeExpired && !r.given():
		info.State, info.Holder = lease.Dead, r.holder()
	}
	return info
}

// note is a blob's metadata: what is kept with a lock beside its token.
type note struct {
	token  lease.Token // of the claim that wrote it
	holder string
	since  int64 // ms on the service's clock
	value  []byte
	marks  lease.Marks
	before int64         // marks.Started before this claim
	freed  string        // the lease that a release has given up; worth nothing any more
	broken *lease.Reason // the last forced release
}

// The names of a blob's metadata.
const (
	metaToken    = "token"
	metaHolder   = "holder"
	metaSince    = "since"
	metaValue    = "value"
	metaStarted  = "started"
	metaFinished = "finished"
	metaRunning  = "running"
	metaBefore   = "before"
	metaFreed    = "freed"
	metaBy       = "brokenby"
	metaWhy      = "brokenwhy"
	metaBroken   = "brokentoken"
	metaAt       = "brokenat"
)

var encoding = base64.RawURLEncoding

// metadata encodes a note: numbers as they are, texts and values in base64url, because metadata travels as headers. What is
// empty is left out. The largest note has less than 3 KB of the 8 that the service allows.
func (n *note) metadata() map[string]*string {
	m := map[string]*string{metaToken: new(strconv.FormatUint(uint64(n.token), 10))}
	text := func(key string, v []byte) {
		if len(v) > 0 {
			m[key] = new(encoding.EncodeToString(v))
		}
	}
	number := func(key string, v int64) {
		if v != 0 {
			m[key] = new(strconv.FormatInt(v, 10))
		}
	}
	text(metaHolder, []byte(n.holder))
	text(metaValue, n.value)
	number(metaSince, n.since)
	number(metaStarted, n.marks.Started)
	number(metaFinished, n.marks.Finished)
	number(metaRunning, n.marks.Running)
	number(metaBefore, n.before)
	if n.freed != "" {
		m[metaFreed] = new(n.freed)
	}
	if b := n.broken; b != nil {
		text(metaBy, []byte(b.By))
		text(metaWhy, []byte(b.Why))
		number(metaBroken, int64(b.Token)) //nolint:gosec // below 2^53
		number(metaAt, b.At.UnixMilli())
	}
	return m
}

// The largest instants that are believed: the year 9999.
const (
	maxSeconds = 253402300799
	maxMillis  = maxSeconds*1000 + 999
)

// readNote reads metadata, which is untrusted: somebody else may have written it, and a grant must never come of a guess. The
// names come back in any case. Metadata without a token is not this library's, and gives an empty note.
func readNote(metadata map[string]*string) (note, error) {
	d := decoder{m: map[string]string{}}
	for k, v := range maps.All(metadata) {
		if v != nil {
			d.m[strings.ToLower(k)] = *v
		}
	}
	if _, ours := d.m[metaToken]; !ours {
		return note{}, nil
	}
	n := note{
		token:  lease.Token(d.number(metaToken, int64(lease.MaxToken))), //nolint:gosec // not negative
		holder: string(d.bytes(metaHolder)), value: d.bytes(metaValue), since: d.number(metaSince, maxMillis),
		marks: lease.Marks{
			Started: d.number(metaStarted, maxSeconds), Finished: d.number(metaFinished, maxSeconds),
			Running: d.number(metaRunning, maxSeconds),
		},
		before: d.number(metaBefore, maxSeconds), freed: d.m[metaFreed],
	}
	if _, was := d.m[metaBy]; was {
		n.broken = &lease.Reason{
			By: string(d.bytes(metaBy)), Why: string(d.bytes(metaWhy)),
			Token: lease.Token(d.number(metaBroken, int64(lease.MaxToken))), //nolint:gosec // not negative
			At:    time.UnixMilli(d.number(metaAt, maxMillis)),
		}
	}
	if d.err != nil {
		return note{}, d.err
	}
	return n, nil
}

type decoder struct {
	m   map[string]string
	err error
}

func (d *decoder) fault(key, want string) {
	if d.err == nil {
		d.err = fmt.Errorf("the blob's metadata %q is not %s: it was not written by this library", key, want)
	}
}

func (d *decoder) bytes(key string) []byte {
	text, ok := d.m[key]
	if !ok {
		return nil
	}
	b, err := encoding.DecodeString(text)
	if err != nil {
		d.fault(key, "base64url")
	}
	return b
}

func (d *decoder) number(key string, most int64) int64 {
	text, ok := d.m[key]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		d.fault(key, fmt.Sprintf("a whole number from 0 to %d", most))
	}
	return n
}

// properties is what the service says of a blob, alone or in a listing.
type properties struct {
	etag     azcore.ETag
	kind     blob.BlobType
	sequence *int64
	state    *azlease.StateType
	duration *azlease.DurationType
	metadata map[string]*string
}

// read makes a record of what the service says. The error is that the blob cannot be a lock's.
func (s *Store) read(name string, p properties) (record, error) {
	rec := record{name: name, etag: p.etag}
	if p.state != nil {
		rec.state = *p.state
	}
	rec.infinite = p.duration != nil && *p.duration == azlease.DurationTypeInfinite
	rec.note, rec.fault = readNote(p.metadata)
	want := blob.BlobTypePageBlob
	if s.opt.MetadataTokens {
		want = blob.BlobTypeBlockBlob
	}
	switch {
	case p.kind != want:
		return rec, fmt.Errorf("the blob is a %s, not a %s", p.kind, want)
	case s.opt.MetadataTokens:
		rec.token = rec.note.token
		if rec.fault == nil && rec.token == 0 {
			rec.fault = fmt.Errorf("the blob's metadata has no token: the history of its tokens is missing")
		}
	case p.sequence == nil || *p.sequence < 0 || *p.sequence > int64(lease.MaxToken):
		return rec, fmt.Errorf("the blob's sequence number is not from 0 to %d", lease.MaxToken)
	default:
		rec.token = lease.Token(*p.sequence) //nolint:gosec // not negative
	}
	return rec, nil
}
