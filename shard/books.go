package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudlease/cloudlease/lease"
)

// keepBooks is what one worker does for the group: it makes records of new shards, and parks those whose owners keep dying.
// Rows that it makes or changes are in v then.
func (s *session) keepBooks(ctx context.Context, v *view) error {
	s.listSource(ctx, *v)
	s.mu.Lock()
	list := s.list
	s.mu.Unlock()
	if err := s.createRows(ctx, v, list); err != nil {
		return err
	}
	for _, id := range v.order {
		have := v.rows[id]
		if v.claimable(have.row) && crashing(have.row, s.opt.MaxTries) {
			why := fmt.Sprintf("claimed %d times in a row without a checkpoint", have.row.Tries)
			have.row.Parked = &parked{By: s.c.Holder(), Why: why}
			if err := s.store(ctx, v, id, have); err == nil {
				s.tell(Parked, s.rowKey(id), have.row.Token, 0, errors.New(why))
			}
		}
	}
	return nil
}

// store writes a changed row, and puts it into v.
func (s *session) store(ctx context.Context, v *view, id string, have held) error {
	rec, err := s.swapRow(ctx, have.rec, have.row.free())
	if err == nil {
		v.rows[id] = held{rec, have.row.free()}
	}
	return err
}

// listSource lists the source when it is time, or when a shard was finished since: its children may be new. A list that fails
// changes nothing.
func (s *session) listSource(ctx context.Context, v view) {
	ended := 0
	for _, have := range v.rows {
		if have.row.End {
			ended++
		}
	}
	now := s.c.Clock()()
	s.mu.Lock()
	due := s.listed.IsZero() || now.Slow(s.listed) >= s.opt.SourceInterval || ended != s.ended
	s.mu.Unlock()
	if !due {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, s.c.Options().TTL)
	defer cancel()
	list, err := s.source.Shards(bounded)
	if err == nil {
		err = s.checkList(list)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.tell(SourceFailed, s.name, 0, 0, err)
		}
		return
	}
	s.tellUnknownParents(v, list)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.listed, s.ended = list, now, ended
}

// tellUnknownParents tells of shards that can never begin.
func (s *session) tellUnknownParents(v view, list []Info) {
	listed := make(map[string]bool, len(list))
	for _, info := range list {
		listed[info.ID] = true
	}
	for _, info := range list {
		if have, ok := v.rows[info.ID]; ok {
			info.Parents = have.row.Parents
		}
		for _, p := range info.Parents {
			if _, has := v.rows[p]; !has && !listed[p] {
				s.tell(SourceFailed, s.rowKey(info.ID), 0, 0, fmt.Errorf("its parent %q is not listed and has no record: it waits", p))
			}
		}
	}
}

// createRows makes records of shards that have none. It holds the group's seed lock meanwhile, whose token begins the tokens of
// the new records. A shard that was born before is not new: its record was deleted, and nobody knows where to go on.
func (s *session) createRows(ctx context.Context, v *view, list []Info) error {
	missing := slices.DeleteFunc(slices.Clone(list), func(i Info) bool {
		_, has := v.rows[i.ID]
		return has || v.bad[i.ID] != nil
	})
	if len(missing) == 0 {
		return nil
	}
	l, err := s.c.TryAcquire(ctx, s.seedKey())
	if errors.Is(err, lease.ErrHeld) {
		return nil // another worker makes them
	}
	if err != nil {
		return err
	}
	defer func() { _ = l.Release(ctx) }() // its failure is told to the observer
	if err := checkSeed(l.Token()); err != nil {
		return s.fail("create", s.seedKey(), lease.ErrMisconfigured, err)
	}
	ctx, cancel := l.Context(ctx)
	defer cancel()
	born, err := s.loadBirths(ctx)
	if err != nil {
		return err
	}
	lost := s.makeRows(ctx, v, missing, l.Token(), born)
	if lost == 0 {
		return nil
	}
	_, err = s.changeRoster(ctx, func(r roster) (roster, bool) { // their owners are to know
		r.bell++
		return r, true
	})
	return err
}

// makeRows makes the records of missing shards, and puts them into v. It returns how many of them had been lost.
func (s *session) makeRows(ctx context.Context, v *view, missing []Info, seed lease.Token, born map[string]birth) (lost int) {
	ids := make([]string, len(missing))
	parents := make(map[string][]string, len(missing))
	for i, info := range missing {
		ids[i], parents[info.ID] = info.ID, info.Parents
	}
	made := make(chan held, len(missing))
	s.each(ids, func(id string) bool {
		r := row{Token: seeded(seed), Parents: parents[id], Seen: s.now()}
		if b, was := born[id]; was {
			r.Known, r.End = true, b.End
			if !b.End {
				r.Parked = &parked{By: s.c.Holder(), Why: "its record was deleted: its position is not known", Lost: true}
			}
		}
		rec, err := s.swapRow(ctx, lease.Record{Key: s.rowKey(id)}, r)
		if err != nil {
			return false // another made it, or the next look finds it missing
		}
		made <- held{rec, r}
		return true
	})
	close(made)
	for have := range made {
		id := strings.TrimPrefix(have.rec.Key, s.rowsKey())
		v.rows[id] = have
		v.order = append(v.order, id)
		if have.row.Parked != nil {
			lost++
			s.tell(RowLost, have.rec.Key, have.row.Token, 0, errors.New(have.row.Parked.Why))
		}
	}
	slices.Sort(v.order)
	return lost
}

func checkSeed(t lease.Token) error {
	if t > maxSeed {
		return fmt.Errorf("the token %d of the group's seed lock is above %d: the shards' tokens would be too large", t, maxSeed)
	}
	return nil
}

// takeSeed is a first token above all that any shard of the group ever had.
func (g group) takeSeed(ctx context.Context) (lease.Token, error) {
	l, err := g.c.Acquire(ctx, g.seedKey())
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Release(ctx) }() // its failure is told to the observer
	if err := checkSeed(l.Token()); err != nil {
		return 0, g.fail("claim", g.seedKey(), lease.ErrMisconfigured, err)
	}
	return seeded(l.Token()), nil
}

func (g group) loadBirths(ctx context.Context) (map[string]birth, error) {
	born := map[string]birth{}
	for rec, err := range g.records.Scan(ctx, g.birthsKey()) {
		if err != nil {
			return nil, err
		}
		born[strings.TrimPrefix(rec.Key, g.birthsKey())] = decodeBirth(rec.Value)
	}
	return born, nil
}

// noteEnd keeps beside the row that the shard was finished, for the case that the row is deleted. The row itself has it.
func (s *session) noteEnd(ctx context.Context, id string) {
	held, cancel := s.lease.Context(context.WithoutCancel(ctx))
	defer cancel()
	rec, err := s.load(held, s.birthKey(id))
	if err == nil {
		_, err = s.swap(held, rec, birth{End: true}.encode())
	}
	if err != nil {
		s.tell(GroupFailed, s.birthKey(id), 0, 0, err)
	}
}

// keepPosition remembers where a shard was whose record was deleted while this worker had it.
func (w *Worker) keepPosition(id, position string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rescue[id] = position
}

// rescueRows gives rows that were made anew the positions that this worker had stored in them before they were deleted. Nobody
// else can have gone on since: nobody takes a shard from a living worker.
func (s *session) rescueRows(ctx context.Context, v *view) {
	s.Worker.mu.Lock()
	rescue := map[string]string{}
	for id, position := range s.rescue {
		if s.busy[id] == 0 { // its function has returned
			rescue[id] = position
		}
	}
	s.Worker.mu.Unlock()
	for id, position := range rescue {
		have, ok := v.rows[id]
		if !ok {
			continue
		}
		if p := have.row.Parked; p != nil && p.Lost {
			have.row.Parked, have.row.At = nil, position
			if s.store(ctx, v, id, have) != nil {
				continue // tried again at the next look
			}
		}
		s.Worker.mu.Lock()
		delete(s.rescue, id)
		s.Worker.mu.Unlock()
	}
}
