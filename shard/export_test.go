package shard

import (
	"slices"

	"github.com/cloudlease/cloudlease/lease"
)

// Load is a load for the planner's tests.
type Load struct{ Owned, Limit int }

// Quotas is quotas.
func Quotas(loads []Load, live int) []int {
	in := make([]load, len(loads))
	for i, l := range loads {
		in[i] = load{l.Owned, l.Limit}
	}
	return quotas(in, live)
}

// Shares is shares.
var Shares = shares

// CheckRow decodes a row and encodes it again.
func CheckRow(v []byte) ([]byte, error) {
	r, err := decodeRow(v)
	return r.encode(), err
}

// CheckRoster decodes a roster and encodes it again, with the slots of its members.
func CheckRoster(v []byte) (again []byte, slots []int, err error) {
	r, err := decodeRoster(lease.Record{Key: "k", Version: 1, Value: v})
	for _, m := range r.members {
		slots = append(slots, m.slot)
	}
	return r.encode(), slots, err
}

// CheckList is checkList of a group.
func CheckList(list []Info) error { return keys{"g"}.checkList(list) }

// NextToken and Seeded make tokens.
var (
	NextToken = nextToken
	Seeded    = seeded
	CheckSeed = checkSeed
	Reason    = reason
)

// MaxCount is how many claims one seed is good for.
const MaxCount = maxCount

// FindCycle is findCycle.
func FindCycle(parents map[string][]string) []string {
	c := findCycle(parents)
	slices.Sort(c)
	return slices.Compact(c)
}
