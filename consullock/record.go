package consullock

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/excerpt"
	"github.com/cloudlease/cloudlease/lease"
)

// lockNote is the value of the key that a session locks.
type lockNote struct {
	Attempt string      `json:"attempt"`         // of the newest grant
	Since   int64       `json:"since,omitempty"` // as the grant's: what is a new grant there is one here, and moves the index
	Freed   bool        `json:"freed,omitempty"` // it was released or broken
	Swept   bool        `json:"swept,omitempty"` // its client freed it for want of a lease: a release may yet leave something
	Token   lease.Token `json:"token,omitempty"` // of the grant that was freed: known only after it was written
}

// grantNote says whose the newest grant is. It is written in the transaction that locks, and never otherwise, so that its
// index is the grant's.
type grantNote struct {
	Attempt    string `json:"attempt"`
	Holder     string `json:"holder"`
	Since      int64  `json:"since,omitempty"`      // ms on the service's clock
	LockDelay  int64  `json:"lockdelay,omitempty"`  // ms, of its session
	Running    int64  `json:"running,omitempty"`    // the occurrence it is for
	Before     int64  `json:"before,omitempty"`     // the newest start before it
	Datacenter string `json:"datacenter,omitempty"` // where it was locked, if its holder was told
}

// keptNote is what stays with a lock from grant to grant.
type keptNote struct {
	Value    []byte      `json:"value,omitempty"`
	Started  int64       `json:"started,omitempty"`
	Finished int64       `json:"finished,omitempty"`
	Broken   *brokenNote `json:"broken,omitempty"`
}

type brokenNote struct {
	By    string      `json:"by"`
	Why   string      `json:"why,omitempty"`
	Token lease.Token `json:"token"`
	At    int64       `json:"at"` // ms on the service's clock
}

// floorNote is what is added to the index of a grant to make its token. Grants that were written before the floor was last
// raised have what was added then.
type floorNote struct {
	Add    uint64 `json:"add"`
	Before uint64 `json:"before,omitempty"`
}

// record is a lock as it was read, in one transaction.
type record struct {
	name string

	lock, grant, kept, floor *api.KVPair // nil: there is no such key

	note  lockNote
	by    grantNote
	keep  keptNote
	add   floorNote
	fault error // why one of them cannot be read
}

// take puts a key of the lock into the record.
func (r *record) take(part string, p *api.KVPair) {
	var fault error
	switch part {
	case lockKey:
		r.lock = p
		if json.Unmarshal(p.Value, &r.note) != nil || r.note.Token > lease.MaxToken {
			r.note = lockNote{} // somebody wrote over it; who holds it is in the key itself
		}
	case grantKey:
		r.grant = p
		fault = json.Unmarshal(p.Value, &r.by)
	case keptKey:
		r.kept = p
		fault = json.Unmarshal(p.Value, &r.keep)
	case floorKey:
		r.floor = p
		fault = json.Unmarshal(p.Value, &r.add)
	}
	if fault != nil {
		r.fault = fmt.Errorf("the key %s cannot be read, it was not written by this library: %w", p.Key, excerpt.Error(fault))
	}
}

func index(p *api.KVPair) uint64 {
	if p == nil {
		return 0
	}
	return p.ModifyIndex
}

// addAt is what is added to an index.
func (r *record) addAt(index uint64) uint64 {
	if r.floor != nil && index < r.floor.ModifyIndex {
		return r.add.Before
	}
	return r.add.Add
}

// token is that of the present or the last grant.
func (r *record) token() lease.Token {
	t := r.note.Token
	if r.grant != nil {
		t = max(t, lease.Token(r.grant.ModifyIndex+r.addAt(r.grant.ModifyIndex)))
	}
	return t
}

func (r *record) held() bool { return r.lock != nil && r.lock.Session != "" }

// current tells whether what is known of the newest grant is about the one that the lock has.
func (r *record) current() bool {
	return r.lock != nil && r.grant != nil && r.note.Attempt == r.by.Attempt && r.note.Attempt != "" && !r.note.Freed
}

// dead tells whether the newest grant ended without a release.
func (r *record) dead() bool { return r.lock != nil && r.lock.Session == "" && r.current() }

func (r *record) marks() lease.Marks {
	m := lease.Marks{Started: r.keep.Started, Finished: r.keep.Finished}
	if r.current() {
		m.Running = r.by.Running
	}
	return m
}

func (r *record) holder() string {
	switch {
	case r.current():
		return r.by.Holder
	case r.held():
		return "unknown (a session that locked the key by hand)"
	}
	return ""
}

func (r *record) heldError() *lease.HeldError {
	h := &lease.HeldError{Name: r.name, Holder: r.holder(), Marks: r.marks()}
	if r.current() {
		h.Token = r.token()
	}
	return h
}

func (r *record) describe() lease.Info {
	info := lease.Info{
		Name: r.name, State: lease.Free, Token: r.token(), Value: r.keep.Value, Marks: r.marks(), Broken: r.keep.Broken.reason(),
	}
	if r.grant != nil && r.by.Since > 0 {
		info.Since = time.UnixMilli(r.by.Since)
	}
	switch {
	case r.lock == nil:
		info.State = lease.Absent
	case r.held():
		info.State, info.Holder = lease.Held, r.holder()
	case r.dead():
		info.State, info.Holder = lease.Dead, r.holder()
	}
	return info
}

func (b *brokenNote) reason() *lease.Reason {
	if b == nil {
		return nil
	}
	return &lease.Reason{By: b.By, Why: b.Why, Token: b.Token, At: time.UnixMilli(b.At)}
}

// brokenBy tells whether the grant with this token was broken, and by whom.
func (r *record) brokenBy(token lease.Token) (string, bool) {
	if b := r.keep.Broken; b != nil && b.Token == token {
		return excerpt.Of(b.By, lease.MaxName), true
	}
	return "", false
}

func (r *record) whyLost() error {
	if by, broken := r.brokenBy(r.token()); broken {
		return fmt.Errorf("it was broken by %s", by)
	}
	switch {
	case r.lock == nil:
		return errors.New("its key is gone")
	case r.held() && r.holder() != "":
		return fmt.Errorf("the lock has token %d now, of %s", r.token(), r.holder())
	case r.dead():
		return errors.New("its session has ended")
	}
	return fmt.Errorf("the lock is free, its last token was %d", r.token())
}

// encode makes JSON of a note, which cannot fail.
func encode(note any) []byte {
	b, err := json.Marshal(note)
	if err != nil {
		panic(err)
	}
	return b
}
