package shard

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/cloudlease/cloudlease/lease"
)

// work reads the shards' records and does what they ask for: the books, if this worker keeps them, and its own claims.
func (s *session) work(ctx context.Context) error {
	mine := s.owned()
	started := s.c.Clock()()
	v, err := s.look(ctx)
	if err != nil {
		return err
	}
	if !v.roster.has(s.slot, s.lease.Token()) {
		return nil // the loop finds out
	}
	s.tellBad(v)
	s.audit(ctx, v, mine, started)
	s.mu.Lock()
	plans := s.replan || v.roster.leads(s.slot)
	s.mu.Unlock()
	if v.roster.leads(s.slot) {
		if err := s.keepBooks(ctx, &v); err != nil {
			return err
		}
	}
	s.rescueRows(ctx, &v)
	if plans {
		if err := s.plan(ctx, &v); err != nil {
			return err
		}
	}
	s.start(ctx, &s.claiming, func() error { s.claimShare(ctx, v); return nil })
	return nil
}

// owned are the shards that this worker runs.
func (s *session) owned() map[string]*Shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.shards)
}

// tellBad tells once of each row that cannot be read.
func (s *session) tellBad(v view) {
	for id, err := range v.bad {
		s.mu.Lock()
		known := s.bad[id]
		s.bad[id] = true
		s.mu.Unlock()
		if !known {
			s.tell(GroupFailed, s.name, 0, 0, err)
		}
	}
}

// audit compares the records with what this worker runs: mine, as it was before they were read. What is not as it was left is
// read once more before it counts.
func (s *session) audit(ctx context.Context, v view, mine map[string]*Shard, started lease.Reading) {
	s.mu.Lock()
	s.bell, s.audited = v.roster.bell, started
	s.mu.Unlock()
	for id, sh := range mine {
		have, ok := v.rows[id]
		if ok && have.row.Token == sh.token && have.row.by(s.slot, s.lease.Token()) {
			if have.row.Parked != nil {
				sh.handOver(ctx, inOrder)
			}
			continue
		}
		sh.verify(ctx)
	}
	for _, id := range v.order {
		have := v.rows[id]
		if _, runs := mine[id]; runs || !have.row.by(s.slot, s.lease.Token()) {
			continue
		}
		if s.idleHere(id) { // a claim whose answer never came
			next := have.row.free()
			next.Tries = max(next.Tries-1, 0)
			_, _ = s.swapRow(ctx, have.rec, next) // refused: it has changed since, or is looked at again
		}
	}
}

// idleHere tells whether this worker neither runs the shard nor is about to.
func (s *session) idleHere(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shards[id] == nil && !s.pending[id]
}

// verify reads the shard's row, and ends the shard if that does not name this worker any more.
func (sh *Shard) verify(ctx context.Context) {
	select {
	case <-sh.turn:
	case <-ctx.Done():
		return
	}
	defer func() { sh.turn <- struct{}{} }()
	if sh.Err() == nil {
		_ = sh.reload(ctx, "hold") // told as a loss, or tried again at the next look
	}
}

// plan stores the quotas that the view asks for. If somebody comes or goes meanwhile, it plans with the newer roster: the rows
// were still read before it.
func (s *session) plan(ctx context.Context, v *view) error {
	change := func(r roster) (roster, bool) {
		v.roster = r
		next, changed := v.planned(s.opt.MaxTries)
		if next.settling && (!v.strangers() || s.settled(r)) {
			next.settling, changed = false, true
		}
		return next, changed
	}
	next, changed := change(v.roster) // mostly there is nothing to do: the roster was read just now
	if changed {
		var err error
		if next, err = s.changeRoster(ctx, change); err != nil {
			return err
		}
	}
	v.roster = next
	s.mu.Lock()
	s.replan = false
	s.roster = next
	s.mu.Unlock()
	return nil
}

// settled tells whether a new roster is old enough: whoever was in the one before it, and has not entered this one, trusts its
// lease no more. Sessions may be shorter than that, so the worker remembers it from one to the next.
func (w *Worker) settled(r roster) bool {
	now, o := w.c.Clock()(), w.c.Options()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settling != r.born {
		w.settling, w.since = r.born, now
	}
	return now.Slow(w.since) > o.TTL+o.Margin
}

// claimShare claims what this worker lacks of its quota.
func (s *session) claimShare(ctx context.Context, v view) {
	me, ok := v.roster.index(s.slot)
	if !ok {
		return
	}
	t := v.tally(s.opt.MaxTries)
	lacks := make([]int, len(t.loads))
	for i, l := range t.loads {
		lacks[i] = v.roster.members[i].quota - l.owned
	}
	s.mu.Lock()
	lacks[me] = v.roster.members[me].quota - len(s.shards)
	patient := s.vain < 3
	s.mu.Unlock()
	free := s.claimableHere(t.free)
	mine := shares(free, lacks, me)
	if !patient { // those whose turn it is do not take them
		mine = free[:min(max(lacks[me], 0), len(free))]
	}
	won := s.each(mine, func(id string) bool { return s.claim(ctx, id, v.rows[id]) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if won == 0 && lacks[me] > 0 && len(free) > 0 {
		s.vain++
	} else {
		s.vain = 0
	}
}

// claimableHere leaves out shards whose function still runs in this process although they have moved on, and those that this
// worker has just handed over.
func (s *session) claimableHere(ids []string) []string {
	now := s.c.Clock()()
	s.Worker.mu.Lock()
	defer s.Worker.mu.Unlock()
	for id, at := range s.gave {
		if now.Slow(at) >= 2*s.opt.Interval {
			delete(s.gave, id)
		}
	}
	var out []string
	for _, id := range ids {
		if _, gave := s.gave[id]; !gave && s.busy[id] == 0 {
			out = append(out, id)
		}
	}
	return out
}

// coolDown keeps this worker from taking back a shard that it has just handed over.
func (w *Worker) coolDown(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gave[id] = w.c.Clock()()
}

// each calls f for all ids, several at a time, and counts the successes.
func (s *session) each(ids []string, f func(id string) bool) int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	next, won := 0, 0
	for range min(gatePlaces, len(ids)) {
		wg.Go(func() {
			for {
				mu.Lock()
				if next == len(ids) {
					mu.Unlock()
					return
				}
				id := ids[next]
				next++
				mu.Unlock()
				if f(id) {
					mu.Lock()
					won++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return won
}

// claim makes this worker the shard's owner, if nobody has changed its record since it was read. It counts only if the worker's
// lease is still good when the answer is here.
func (s *session) claim(ctx context.Context, id string, have held) bool {
	if s.check() != nil || ctx.Err() != nil {
		return false
	}
	s.mu.Lock()
	s.pending[id] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.pending, id)
		s.mu.Unlock()
	}()
	next := have.row
	if next.Token = nextToken(next.Token); next.Token == 0 {
		seed, err := s.takeSeed(ctx)
		if err != nil {
			s.tell(GroupFailed, s.rowKey(id), 0, 0, err)
			return false
		}
		next.Token = seed
	}
	if !next.Known { // before the function can do anything that must not be done again
		if _, err := s.swap(ctx, lease.Record{Key: s.birthKey(id)}, birth{}.encode()); err != nil && !errors.Is(err, lease.ErrConflict) {
			s.tell(GroupFailed, s.rowKey(id), 0, 0, err)
			return false
		}
	}
	next.Slot, next.Worker, next.Known, next.Tries, next.Seen = s.slot, s.lease.Token(), true, next.Tries+1, s.now()
	rec, err := s.swapRow(ctx, have.rec, next)
	if err != nil {
		if !errors.Is(err, lease.ErrConflict) && ctx.Err() == nil {
			s.tell(GroupFailed, s.rowKey(id), 0, 0, err)
		}
		return false
	}
	if s.check() != nil {
		return false // its row names an owner that is over: free for all
	}
	if !s.begin(ctx, id, held{rec, next}) {
		s.unclaim(ctx, rec, next)
		return false
	}
	return true
}

// unclaim gives back what was claimed too late to begin.
func (s *session) unclaim(ctx context.Context, rec lease.Record, r row) {
	r = r.free()
	r.Tries = max(r.Tries-1, 0)
	held, cancel := s.lease.Context(context.WithoutCancel(ctx))
	defer cancel()
	_, _ = s.swapRow(held, rec, r) // what stays is free when this worker has left the roster
}

func (s *session) now() int64 { return s.c.Clock()().Wall.UnixMilli() }
