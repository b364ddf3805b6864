package shard

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/cloudlease/cloudlease/lease"
)

// Info is a shard as its source describes it.
type Info struct {
	// ID is the shard's name, unique in its source: UTF-8 without control characters, short enough for a record's key.
	ID string
	// Parents are the shards whose end comes before this one's beginning: none, one (split), or several (merge). They are
	// stored when the shard is first seen and not changed after. A parent that the source does not list and that the
	// group has no record of blocks its children; leave out parents that are gone.
	Parents []string
}

// Source lists all shards of a group. Shards returns the whole list or an error: a partial list must be an error. What is
// missing from a list is not forgotten. It is called by one worker of a group at a time, as a rule, and is bounded by ctx.
type Source interface {
	Shards(ctx context.Context) ([]Info, error)
}

// SourceFunc is a function as a Source.
type SourceFunc func(ctx context.Context) ([]Info, error)

// Shards calls f.
func (f SourceFunc) Shards(ctx context.Context) ([]Info, error) { return f(ctx) }

// Static is a source of shards without parents that never change. New checks their ids.
func Static(ids ...string) Source {
	s := make(static, len(ids))
	for i, id := range ids {
		s[i] = Info{ID: id}
	}
	return s
}

type static []Info

func (s static) Shards(context.Context) ([]Info, error) { return s, nil }

// maxParents keeps a record within what every store takes.
const maxParents = 8

// checkList refuses a list that cannot be a source's: as a whole, because a part of it might be processed twice.
func (k keys) checkList(list []Info) error {
	parents := make(map[string][]string, len(list))
	for _, s := range list {
		if err := k.checkID(s.ID); err != nil {
			return err
		}
		if _, twice := parents[s.ID]; twice {
			return lease.Invalid("list shards", k.name, "the source has the shard %q twice", s.ID)
		}
		if len(s.Parents) > maxParents {
			return lease.Invalid("list shards", k.name, "the shard %q has %d parents, more than %d", s.ID, len(s.Parents), maxParents)
		}
		for _, p := range s.Parents {
			if err := k.checkID(p); err != nil {
				return fmt.Errorf("a parent of %q: %w", s.ID, err)
			}
		}
		parents[s.ID] = s.Parents
	}
	if cycle := findCycle(parents); cycle != nil {
		return lease.Invalid("list shards", k.name, "the shards %.200q are parents of each other", cycle)
	}
	return nil
}

// findCycle returns shards that descend from each other, in order, or nil.
func findCycle(parents map[string][]string) []string {
	const (
		under = 1
		done  = 2
	)
	state := make(map[string]int, len(parents))
	for start := range parents {
		path := []string{start}
		for len(path) > 0 { // depth first without recursion: a chain of splits can be long
			at := path[len(path)-1]
			if state[at] == 0 {
				state[at] = under
			}
			next := ""
			for _, p := range parents[at] {
				if state[p] == under {
					return append(path[slices.Index(path, p):], p)
				}
				if _, listed := parents[p]; listed && state[p] == 0 {
					next = p
					break
				}
			}
			if next == "" || state[at] == done {
				state[at] = done
				path = path[:len(path)-1]
				continue
			}
			path = append(path, next)
		}
	}
	return nil
}

// keys are the names of a group's locks and records. A group's name has no slash, so that no group's are another's.
type keys struct{ name string }

func (k keys) workerKey(slot int) string { return fmt.Sprintf("%s/w/%d", k.name, slot) }
func (k keys) seedKey() string           { return k.name + "/seed" }
func (k keys) rosterKey() string         { return k.name + "/roster" }
func (k keys) rowsKey() string           { return k.name + "/s/" }
func (k keys) rowKey(id string) string   { return k.rowsKey() + id }
func (k keys) birthsKey() string         { return k.name + "/b/" }
func (k keys) birthKey(id string) string { return k.birthsKey() + id }

const maxGroup = 100

func (k keys) check() error {
	if err := lease.CheckName(k.name); err != nil {
		return lease.Invalid("configure", k.name, "the group's name begins its locks' names: %w", err)
	}
	if len(k.name) > maxGroup {
		return lease.Invalid("configure", k.name, "the group's name has %d bytes, more than %d", len(k.name), maxGroup)
	}
	for _, r := range k.name {
		if r == '/' {
			return lease.Invalid("configure", k.name, "the group's name has a slash")
		}
	}
	return nil
}

func (k keys) checkID(id string) error {
	if id == "" {
		return lease.Invalid("list shards", k.name, "a shard's id is empty")
	}
	if err := lease.CheckName(k.rowKey(id)); err != nil {
		return lease.Invalid("list shards", k.name, "the shard id %.60q is not the end of a record's key: %w", id, err)
	}
	return nil
}

// MaxPosition is the largest position of a checkpoint, in bytes.
const MaxPosition = 1024

func checkPosition(p string) error {
	if len(p) > MaxPosition {
		return fmt.Errorf("the position has %d bytes, more than %d", len(p), MaxPosition)
	}
	if !utf8.ValidString(p) {
		return fmt.Errorf("the position %.40q is not valid UTF-8; encode binary positions", p)
	}
	return nil
}
