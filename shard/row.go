package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cloudlease/cloudlease/internal/excerpt"
	"github.com/cloudlease/cloudlease/lease"
)

// row is a shard's record. Every change of it is a compare-and-swap of the record's version, which grows with every write.
type row struct {
	Format  int         `json:"v"`
	Token   lease.Token `json:"token"`            // the shard's own fencing token
	Slot    int         `json:"slot,omitempty"`   // the owner's worker lease, if Worker is not 0
	Worker  lease.Token `json:"worker,omitempty"` // that lease's token; 0: no owner
	Parents []string    `json:"parents,omitempty"`
	At      string      `json:"at,omitempty"`     // the last checkpoint
	Seen    int64       `json:"seen,omitempty"`   // when it was stored or the shard was claimed, unix ms on that host's clock, for display
	Tries   int         `json:"tries,omitempty"`  // claims since the last checkpoint that were not handed back in order
	Known   bool        `json:"known,omitempty"`  // it was claimed once, so there is a birth record
	End     bool        `json:"end,omitempty"`    // finished for good
	Parked  *parked     `json:"parked,omitempty"` // nobody claims it
}

// parked says why.
type parked struct {
	By   string `json:"by"`
	Why  string `json:"why,omitempty"`
	Lost bool   `json:"lost,omitempty"` // its record had been deleted: the position is not known
}

const (
	format  = 1
	maxWhy  = 200
	maxSlot = 4095
)

func (r row) owned() bool { return r.Worker != 0 }

// by tells whether the worker lease of slot with token owns the shard.
func (r row) by(slot int, token lease.Token) bool {
	return r.Worker == token && r.Slot == slot && token != 0
}

// free is r without its owner.
func (r row) free() row {
	r.Slot, r.Worker = 0, 0
	return r
}

func (r row) encode() []byte {
	r.Format = format
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("shard: encode a record: %v", err)) // it has only numbers, strings and booleans
	}
	return b
}

// decodeRow reads a record. It may have been written by somebody else, and a claim must never come of a guess.
func decodeRow(v []byte) (row, error) {
	var r row
	d := json.NewDecoder(bytes.NewReader(v))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("the record was not written by this library: %w", excerpt.Error(err))
	}
	var fault error
	switch {
	case r.Format != format:
		fault = fmt.Errorf("its format is %d, not %d", r.Format, format)
	case d.More():
		fault = errors.New("something follows it")
	case r.Token == 0 || r.Token > lease.MaxToken || r.Worker > lease.MaxToken:
		fault = errors.New("a token is out of range")
	case r.Slot < 0 || r.Slot > maxSlot || r.Slot != 0 && r.Worker == 0:
		fault = fmt.Errorf("its owner %d is no worker", r.Slot)
	case r.Tries < 0 || len(r.Parents) > maxParents || r.End && r.owned():
		fault = errors.New("its fields contradict each other")
	default:
		fault = checkPosition(r.At)
	}
	if fault != nil {
		return r, fmt.Errorf("the record was not written by this library: %w", fault)
	}
	return r, nil
}

// The shard's token is a seed and a count of claims. The seed is a grant's token of one lock that the whole group shares, so
// that it is higher than all seeds before, whatever store it is and whichever records were deleted since.
const countBits = 11

const (
	maxCount = 1<<countBits - 1
	maxSeed  = lease.MaxToken >> countBits // milliseconds until the year 2109
)

// nextToken is the token of the next claim; 0: the count is used up and a new seed is needed.
func nextToken(t lease.Token) lease.Token {
	if t&maxCount == maxCount {
		return 0
	}
	return t + 1
}

func seeded(seed lease.Token) lease.Token { return seed << countBits }

// birth is what is known of a shard beside its record, so that a deleted record is told from a new shard.
type birth struct {
	End bool `json:"end,omitempty"`
}

func (b birth) encode() []byte {
	if b.End {
		return []byte(`{"end":true}`)
	}
	return []byte(`{}`)
}

func decodeBirth(v []byte) birth {
	var b birth
	if json.Unmarshal(v, &b) != nil {
		return birth{} // it exists, and that is what counts
	}
	return b
}

// reason cuts text to what a record has room for.
func reason(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= maxWhy {
		return text
	}
	return strings.ToValidUTF8(text[:maxWhy-3], "") + "..."
}
