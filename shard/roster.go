package shard

import (
	"cmp"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudlease/cloudlease/internal/excerpt"
	"github.com/cloudlease/cloudlease/lease"
)

// roster is the group's one record of its workers. A worker's entry is removed only after its lease was released or taken, so
// a shard whose owner is not in a roster that was read after the shard has no living owner.
type roster struct {
	members  []member // by slot
	bell     int      // counts calls to every worker to look at its shards' records
	settling bool     // the record is new: owners may be missing from it that still trust their lease
	born     string   // tells this record from one that was deleted
	rec      lease.Record
}

// member is a worker.
type member struct {
	slot  int
	token lease.Token // of its lease
	quota int         // how many shards it is to run
	limit int         // how many it wants at most; 0: any
	name  string      // a short hash of its Options.Holder
}

const maxLimit = 1 << 20

// nameOf is short, because a roster of many workers is one record.
func nameOf(holder string) string {
	sum := sha256.Sum256([]byte(holder))
	return base64.RawURLEncoding.EncodeToString(sum[:3])
}

func (r roster) index(slot int) (int, bool) {
	return slices.BinarySearchFunc(r.members, slot, func(m member, slot int) int { return cmp.Compare(m.slot, slot) })
}

// has tells whether the worker lease of slot with token is a member's.
func (r roster) has(slot int, token lease.Token) bool {
	i, ok := r.index(slot)
	return ok && r.members[i].token == token
}

// with is r with m in the place of whoever had its slot.
func (r roster) with(m member) roster {
	i, ok := r.index(m.slot)
	r.members = slices.Clone(r.members)
	if ok {
		r.members[i] = m
	} else {
		r.members = slices.Insert(r.members, i, m)
	}
	return r
}

// without is r without the worker lease of slot with token; a newer one stays.
func (r roster) without(slot int, token lease.Token) roster {
	if i, ok := r.index(slot); ok && r.members[i].token == token {
		r.members = slices.Delete(slices.Clone(r.members), i, i+1)
	}
	return r
}

// leads tells whether the worker in slot keeps the group's books: it is the one with the lowest slot. Two that believe so
// do no harm: everything they do is a compare-and-swap.
func (r roster) leads(slot int) bool { return len(r.members) > 0 && r.members[0].slot == slot }

// after are the other members, beginning with the one that follows slot.
func (r roster) after(slot int) []member {
	i, ok := r.index(slot)
	if !ok {
		return nil
	}
	return slices.Concat(r.members[i+1:], r.members[:i])
}

type rosterJSON struct {
	Format   int      `json:"v"`
	Bell     int      `json:"bell,omitempty"`
	Settling bool     `json:"settling,omitempty"`
	Born     string   `json:"born,omitempty"`
	Members  []string `json:"members"` // slot:token:quota:limit:name, the token in base 36
}

func (r roster) encode() []byte {
	out := rosterJSON{Format: format, Bell: r.bell, Settling: r.settling, Born: r.born, Members: make([]string, len(r.members))}
	for i, m := range r.members {
		out.Members[i] = fmt.Sprintf("%d:%s:%d:%d:%s", m.slot, strconv.FormatUint(uint64(m.token), 36), m.quota, m.limit, m.name)
	}
	b, err := json.Marshal(out)
	if err != nil {
		panic(fmt.Sprintf("shard: encode the roster: %v", err)) // it has only numbers, strings and booleans
	}
	return b
}

// decodeRoster reads the record; a missing one is an empty roster that has to settle.
func decodeRoster(rec lease.Record) (roster, error) {
	r := roster{rec: rec}
	if rec.Version == 0 {
		r.settling, r.born = true, strings.ToLower(crand.Text()[:8])
		return r, nil
	}
	var in rosterJSON
	err := json.Unmarshal(rec.Value, &in)
	if err == nil && in.Format != format {
		err = fmt.Errorf("its format is %d, not %d", in.Format, format)
	}
	if err != nil {
		return r, fmt.Errorf("the group's roster was not written by this library: %w", excerpt.Error(err))
	}
	r.bell, r.settling, r.born = in.Bell, in.Settling, in.Born
	for i, text := range in.Members {
		m, err := decodeMember(text)
		if err == nil && i > 0 && r.members[i-1].slot >= m.slot {
			err = errors.New("the workers are not in order")
		}
		if err != nil {
			return r, fmt.Errorf("the group's roster was not written by this library: %.60q: %w", text, excerpt.Error(err))
		}
		r.members = append(r.members, m)
	}
	return r, nil
}

func decodeMember(text string) (member, error) {
	f := strings.SplitN(text, ":", 5)
	if len(f) != 5 {
		return member{}, errors.New("a worker has five fields")
	}
	slot, err1 := strconv.Atoi(f[0])
	token, err2 := strconv.ParseUint(f[1], 36, 64)
	quota, err3 := strconv.Atoi(f[2])
	limit, err4 := strconv.Atoi(f[3])
	m := member{slot: slot, token: lease.Token(token), quota: quota, limit: limit, name: f[4]}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return m, err
	}
	if slot < 0 || slot > maxSlot || m.token == 0 || m.token > lease.MaxToken || quota < 0 || limit < 0 || limit > maxLimit {
		return m, errors.New("a number is out of range")
	}
	return m, nil
}
