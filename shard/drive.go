package shard

import (
	"context"
	"errors"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// hidden keeps the worker's lease out of the context of a shard's function: its token is not the shard's.
type hidden struct{ context.Context } //nolint:containedctx // it is a context itself

func (h hidden) Value(key any) any {
	v := h.Context.Value(key)
	if _, is := v.(*lease.Lease); is {
		return nil
	}
	return v
}

// begin starts the function of a shard that was claimed. It returns false if the session is ending.
func (s *session) begin(ctx context.Context, id string, have held) bool {
	now := s.c.Clock()()
	sh := &Shard{
		s: s, id: id, token: have.row.Token, position: have.row.At, since: now, progress: now, rec: have.rec, row: have.row,
		stopping: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{}), turn: make(chan struct{}, 1),
	}
	sh.turn <- struct{}{}
	held, cancel := s.lease.Context(context.WithoutCancel(ctx))
	fctx, end := context.WithCancelCause(hidden{held})
	sh.cancel, sh.end = cancel, end
	s.mu.Lock()
	if s.leaving {
		s.mu.Unlock()
		end(nil)
		cancel()
		return false
	}
	s.shards[id] = sh
	s.mu.Unlock()
	s.Worker.mu.Lock()
	s.busy[id]++
	s.Worker.mu.Unlock()
	s.tell(Claimed, sh.key(), sh.token, 0, nil)
	go sh.drive(fctx)
	return true
}

// drive calls the function until the shard is finished, parked, lost, or asked to stop.
func (sh *Shard) drive(ctx context.Context) {
	s := sh.s
	defer func() {
		sh.end(nil)
		sh.cancel()
		close(sh.done)
		s.returned(sh.id)
		s.nudge()
	}()
	for failures := 0; ; {
		err := s.fn(ctx, sh)
		if sh.asked() || ctx.Err() != nil {
			return // whoever asked gives it back; whoever lost it has nothing to give
		}
		if sh.Err() != nil { // finished
			s.drop(sh)
			return
		}
		pause := jitter(s.opt.Interval, 0.1)
		if err == nil {
			failures = 0
		} else {
			failures++
			s.tell(Failed, sh.key(), sh.token, 0, err)
			if most := s.opt.MaxTries; most > 0 && failures >= most && sh.unmoved() && sh.park(ctx, err) == nil {
				s.drop(sh)
				return
			}
			pause = jitter(min(time.Second<<min(failures-1, 16), longestPause), 0.1)
		}
		wait(ctx, sh.stopping, pause)
		if sh.asked() || ctx.Err() != nil {
			return
		}
	}
}

// longestPause is the longest between two calls of a function that fails.
const longestPause = 5 * time.Minute

func wait(ctx context.Context, stop <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-stop:
	case <-t.C:
	}
}

// unmoved tells whether no checkpoint was stored since the shard was claimed.
func (sh *Shard) unmoved() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.progress == sh.since
}

// park gives the shard up until an operator unparks it.
func (sh *Shard) park(ctx context.Context, why error) error {
	err := sh.change(ctx, "park", func(r row) row {
		r = r.free()
		r.Parked = &parked{By: sh.Holder(), Why: reason("its function fails: " + why.Error())}
		return r
	})
	if err == nil {
		sh.mu.Lock()
		sh.cause = sh.over("park", lease.ErrReleased, errors.New("it is parked"))
		sh.mu.Unlock()
		sh.s.tell(Parked, sh.key(), sh.token, 0, why)
	}
	return err
}

// drop forgets the shard.
func (s *session) drop(sh *Shard) {
	s.mu.Lock()
	if s.shards[sh.id] == sh {
		delete(s.shards, sh.id)
	}
	s.mu.Unlock()
}

// manner is how a shard is given up.
type manner int

const (
	inOrder    manner = iota
	noProgress        // its function makes none, which counts as a try
)

// handOver asks the function to stop and gives the shard back when it has, or when its time is over. It does not block; gone is
// closed at the end. Only the owner takes a shard from a function that is stuck: no other worker has to guess.
func (sh *Shard) handOver(ctx context.Context, how manner) {
	sh.mu.Lock()
	first := !sh.asking
	sh.asking = true
	sh.mu.Unlock()
	if !first {
		return
	}
	sh.signal()
	go func() {
		defer close(sh.gone)
		asked := sh.s.c.Clock()()
		ctx := context.WithoutCancel(ctx)
		forced := false
		wait(ctx, sh.done, sh.s.opt.Grace)
		sh.end(ErrHandOver)
		wait(ctx, sh.done, sh.s.opt.StopLimit)
		select {
		case <-sh.done:
		default:
			forced = true
			sh.s.Worker.mu.Lock()
			sh.s.stuck = true
			sh.s.Worker.mu.Unlock()
		}
		sh.giveBack(ctx, asked, forced, how)
	}()
}

// giveBack frees the row. A shard that was finished or lost meanwhile has none to free.
func (sh *Shard) giveBack(ctx context.Context, asked lease.Reading, forced bool, how manner) {
	s := sh.s
	defer s.nudge()
	defer s.drop(sh)
	err := sh.change(ctx, "hand over", func(r row) row {
		r = r.free()
		if !forced && how == inOrder && r.Tries > 0 {
			r.Tries-- // its function came back: this claim was no crash
		}
		return r
	})
	if err != nil {
		return // lost, finished or parked: told before. Else the lease has ended.
	}
	kind, took := HandedOver, s.c.Clock()().Fast(asked)
	why := errors.New("it was handed over")
	if forced {
		kind, why = Forced, errors.New("its function did not stop in time, and it was handed over without it")
	}
	sh.mu.Lock()
	class := lease.ErrReleased
	if forced {
		class = lease.ErrLost
	}
	sh.cause = sh.over("hold", class, why)
	sh.mu.Unlock()
	var told error
	if forced {
		told = ErrOverrun
	}
	s.coolDown(sh.id)
	s.tell(kind, sh.key(), sh.token, took, told)
}
