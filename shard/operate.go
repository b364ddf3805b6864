package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// State is what a shard's record says.
type State string

// The states of a shard.
const (
	Running    State = "running"    // it has an owner
	Free       State = "free"       // it waits for an owner
	Orphaned   State = "orphaned"   // its owner is gone; it waits for the next
	Waiting    State = "waiting"    // a parent is not finished
	IsParked   State = "parked"     // nobody claims it until Unpark
	IsFinished State = "finished"   // for good
	Unreadable State = "unreadable" // its record was written by somebody else; see Err
)

// Status describes a shard.
type Status struct {
	ID       string
	State    State
	Owner    string        // who runs it, as far as the store tells; empty where nobody does
	Token    lease.Token   // of the present or the last owner
	Position string        // the last checkpoint
	Age      time.Duration // since the last checkpoint, or since the claim; by two hosts' wall clocks, for display
	Tries    int           // claims since the last checkpoint that were not handed back in order, the present one included
	Parents  []string
	Parked   string // why it is parked
	Err      error  // why its record cannot be read
}

// List describes all shards of a group that have a record, by id. It blocks for a scan of the records, one read of the roster,
// and one read for each worker that owns a shard.
func List(ctx context.Context, c *lease.Client, groupName string) ([]Status, error) {
	g, err := newGroup(c, groupName)
	if err != nil {
		return nil, err
	}
	v, err := g.look(ctx)
	if err != nil {
		return nil, err
	}
	owners := map[int]string{}
	out := make([]Status, 0, len(v.rows)+len(v.bad))
	for id, have := range v.rows {
		st := v.describe(id, have.row, c.Clock()().Wall)
		if v.roster.has(have.row.Slot, have.row.Worker) { // it may be parked, and not handed back yet
			holder, known := owners[have.row.Slot]
			if !known {
				info, err := c.Inspect(ctx, g.workerKey(have.row.Slot))
				if err != nil {
					return nil, err
				}
				holder, owners[have.row.Slot] = info.Holder, info.Holder
			}
			st.Owner = holder
		}
		out = append(out, st)
	}
	for id, err := range v.bad {
		out = append(out, Status{ID: id, State: Unreadable, Err: err})
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func (v view) describe(id string, r row, now time.Time) Status {
	st := Status{ID: id, Token: r.Token, Position: r.At, Tries: r.Tries, Parents: r.Parents, State: Free}
	if r.Seen > 0 {
		st.Age = max(now.Sub(time.UnixMilli(r.Seen)), 0)
	}
	switch {
	case r.End:
		st.State = IsFinished
	case r.Parked != nil:
		st.State, st.Parked = IsParked, r.Parked.Why+" (by "+r.Parked.By+")"
	case v.roster.has(r.Slot, r.Worker):
		st.State = Running
	case r.owned():
		st.State = Orphaned
	case !v.ready(r):
		st.State = Waiting
	}
	return st
}

// Park gives a shard to nobody until Unpark: an owner hands it back, in order, within its next look at the group. by and why
// are kept with it. A finished shard, and one that has no record, give lease.ErrInvalid. It costs two reads and two writes.
func Park(ctx context.Context, c *lease.Client, groupName, id, by, why string) error {
	if by == "" {
		return lease.Invalid("park", id, "it is not said who parks the shard")
	}
	g, err := operate(ctx, c, groupName, id, "park", func(r row) (row, error) {
		if r.End {
			return r, errors.New("it is finished")
		}
		r.Parked = &parked{By: reason(by), Why: reason(why)}
		return r, nil
	})
	if err != nil {
		return err
	}
	_, err = g.changeRoster(ctx, func(r roster) (roster, bool) {
		r.bell++
		return r, len(r.members) > 0
	})
	return err
}

// Unpark lets a parked shard be claimed again, from its last checkpoint, and forgets its tries. If its record had been deleted,
// the position is not known, and Unpark gives lease.ErrInvalid: say where to go on with UnparkAt. A shard that is not
// parked is left as it is. It costs one read and one write.
func Unpark(ctx context.Context, c *lease.Client, groupName, id string) error {
	_, err := operate(ctx, c, groupName, id, "unpark", func(r row) (row, error) {
		if r.Parked != nil && r.Parked.Lost {
			return r, errors.New("its record had been deleted, so that its position is not known: say where to go on")
		}
		r.Parked, r.Tries = nil, 0
		return r, nil
	})
	return err
}

// UnparkAt is Unpark that lets the shard go on at position. Whatever was processed after it is processed again. An owner that has
// not handed the shard back yet would go on where it is: that gives lease.ErrInvalid, and a moment later it is past. It costs one
// read more.
func UnparkAt(ctx context.Context, c *lease.Client, groupName, id, position string) error {
	if err := checkPosition(position); err != nil {
		return lease.Invalid("unpark", id, "%w", err)
	}
	g, err := newGroup(c, groupName)
	if err != nil {
		return err
	}
	members, _, err := g.loadRoster(ctx)
	if err != nil {
		return err
	}
	_, err = operate(ctx, c, groupName, id, "unpark", func(r row) (row, error) {
		switch {
		case r.Parked == nil:
			return r, errors.New("it is not parked")
		case members.has(r.Slot, r.Worker):
			return r, errors.New("its owner has not handed it back yet; try again when it shows none")
		}
		r.Parked, r.Tries, r.At = nil, 0, position
		return r, nil
	})
	return err
}

// operate changes a row, whoever changes it meanwhile.
func operate(ctx context.Context, c *lease.Client, groupName, id, op string, f func(row) (row, error)) (group, error) {
	g, err := newGroup(c, groupName)
	if err != nil {
		return g, err
	}
	if err := g.checkID(id); err != nil {
		return g, err
	}
	for {
		have, err := g.loadRow(ctx, id)
		if err != nil {
			return g, err
		}
		if have.rec.Version == 0 {
			return g, lease.Invalid(op, id, "the group %q has no record of the shard", groupName)
		}
		next, err := f(have.row)
		if err != nil {
			return g, lease.Invalid(op, id, "%w", err)
		}
		value := next.encode()
		if string(value) == string(have.rec.Value) {
			return g, nil
		}
		if _, err = g.swap(ctx, have.rec, value); !errors.Is(err, lease.ErrConflict) {
			return g, err
		}
	}
}

// Reseed raises the tokens of all shards above every token that the group has handed out. It is for the time after the store was
// restored from an older copy, with no worker running: the records know only the tokens of that time. It costs a scan, an
// acquire, a release, and a write for each shard.
func Reseed(ctx context.Context, c *lease.Client, groupName string) error {
	g, err := newGroup(c, groupName)
	if err != nil {
		return err
	}
	v, err := g.look(ctx)
	if err != nil {
		return err
	}
	for _, m := range v.roster.members {
		info, err := c.Inspect(ctx, g.workerKey(m.slot))
		if err != nil {
			return err
		}
		if info.State == lease.Held {
			return lease.Invalid("reseed", groupName, "%s is still a worker: stop all workers first", info.Holder)
		}
	}
	seed, err := g.takeSeed(ctx)
	if err != nil {
		return err
	}
	for _, id := range v.order {
		next := v.rows[id].row
		next.Token = max(next.Token, seed)
		if _, err := g.swap(ctx, v.rows[id].rec, next.free().encode()); err != nil {
			return err
		}
	}
	return nil
}
