package shard

import (
	"cmp"
	"slices"
)

// load is what a worker has and may have.
type load struct {
	owned int
	limit int // 0: any
}

// quotas says how many of live shards each worker is to run: as even as the limits allow, the odd ones with those who have most
// already. So nothing moves while no two workers are more than one apart, and never more than what one has too much.
func quotas(loads []load, live int) []int {
	level := levelOf(loads, live)
	out := make([]int, len(loads))
	order := make([]int, len(loads))
	rest := live
	for i, l := range loads {
		out[i], order[i] = l.upTo(level), i
		rest -= out[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(loads[b].owned, loads[a].owned) })
	for _, i := range order {
		if rest > 0 && loads[i].upTo(level+1) > out[i] {
			out[i]++
			rest--
		}
	}
	return out
}

func (l load) upTo(n int) int {
	if l.limit > 0 {
		return min(n, l.limit)
	}
	return n
}

// levelOf is the highest number that all workers, up to their limits, can have of live shards.
func levelOf(loads []load, live int) int {
	fits := func(level int) bool {
		sum := 0
		for _, l := range loads {
			sum += l.upTo(level)
		}
		return sum <= live
	}
	low, high := 0, live+1 // fits(low)
	if len(loads) == 0 {
		return 0
	}
	for high-low > 1 {
		if mid := (low + high) / 2; fits(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// shares deals ids to workers who lack some, in order, so that workers who look at the same time pick different ones. It
// returns the share of the worker me.
func shares(ids []string, lacks []int, me int) []string {
	for i, n := range lacks {
		n = min(max(n, 0), len(ids))
		if i == me {
			return ids[:n]
		}
		ids = ids[n:]
	}
	return nil
}

// view is the group as one look at it shows: the rows were read before the roster.
type view struct {
	rows   map[string]held
	order  []string // ids, sorted
	roster roster
	bad    map[string]error // rows that cannot be read
}

// alive tells whether r's owner may still be working. While the roster settles, every owner may.
func (v view) alive(r row) bool {
	return r.owned() && (v.roster.settling || v.roster.has(r.Slot, r.Worker))
}

// strangers tells whether a row has an owner that is not in the roster.
func (v view) strangers() bool {
	for _, have := range v.rows {
		if have.row.owned() && !v.roster.has(have.row.Slot, have.row.Worker) {
			return true
		}
	}
	return false
}

// ready tells whether every parent's end is stored. A parent without a record is not finished.
func (v view) ready(r row) bool {
	for _, p := range r.Parents {
		if parent, ok := v.rows[p]; !ok || !parent.row.End {
			return false
		}
	}
	return true
}

// claimable tells whether r waits for an owner.
func (v view) claimable(r row) bool {
	return !r.End && r.Parked == nil && !v.alive(r) && v.ready(r)
}

// crashing tells whether r's owners died maxTries times in a row without a checkpoint.
func crashing(r row, maxTries int) bool { return maxTries > 0 && r.Tries >= maxTries }

// tally is what a view says of the balance.
type tally struct {
	loads []load // by the roster's order
	free  []string
	live  int
}

func (v view) tally(maxTries int) tally {
	t := tally{loads: make([]load, len(v.roster.members))}
	for i, m := range v.roster.members {
		t.loads[i].limit = m.limit
	}
	for _, id := range v.order {
		r := v.rows[id].row
		switch {
		case r.End || r.Parked != nil:
		case r.owned() && v.roster.has(r.Slot, r.Worker):
			i, _ := v.roster.index(r.Slot)
			t.loads[i].owned++
			t.live++
		case v.claimable(r) && !crashing(r, maxTries):
			t.free = append(t.free, id)
			t.live++
		}
	}
	return t
}

// planned is the roster with the quotas that the view asks for. changed is false if they are in force.
func (v view) planned(maxTries int) (next roster, changed bool) {
	t := v.tally(maxTries)
	next = v.roster
	next.members = slices.Clone(next.members)
	for i, q := range quotas(t.loads, t.live) {
		changed = changed || next.members[i].quota != q
		next.members[i].quota = q
	}
	return next, changed
}
