package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// session is a worker between joining and leaving: one worker lease.
type session struct {
	*Worker
	fn    Func
	lease *lease.Lease
	slot  int
	wake  chan struct{} // asks for a look before the interval is over
	lost  chan struct{} // closed when the session has to end although its lease has not
	jobs  sync.WaitGroup

	mu       sync.Mutex
	shards   map[string]*Shard // that its record names this session as the owner of
	pending  map[string]bool   // shards that are being claimed
	leaving  bool
	cause    error  // why lost is closed
	roster   roster // as last read
	read     lease.Reading
	expiry   *time.Timer     // to the end of the trust in what was read
	working  bool            // work is under way
	looking  bool            // watch is under way
	claiming bool            // claimShare is under way
	bad      map[string]bool // rows that cannot be read, and that was told
	replan   bool            // this worker has reason to make a plan, although it does not keep the books
	bell     int             // the last one that was heeded
	audited  lease.Reading
	listed   lease.Reading // when the source was last listed
	list     []Info
	ended    int // finished rows that were seen when the source was last listed
	vain     int // claims that came too late, in a row
}

func newSession(w *Worker, l *lease.Lease, slot int, fn Func) *session {
	return &session{
		Worker: w, fn: fn, lease: l, slot: slot, wake: make(chan struct{}, 1), lost: make(chan struct{}),
		shards: map[string]*Shard{}, pending: map[string]bool{}, bad: map[string]bool{}, replan: true, audited: w.c.Clock()(),
	}
}

// serve works until ctx ends or the session is lost, and ends in order.
func (s *session) serve(ctx context.Context) error {
	held, cancel := s.lease.Context(ctx)
	err := s.loop(held)
	if s.lease.Err() == nil && s.over() == nil { // ctx has ended, or the store refuses for good
		cancel()
		s.handAllOver(ctx)
		return errors.Join(err, s.leave(ctx))
	}
	cause := s.over()
	if cause == nil {
		cause = s.lease.Err()
	}
	s.loseAll(cause)
	cancel()
	s.jobs.Wait()
	s.expiry.Stop()
	_ = s.leave(ctx)
	return cause
}

// loop looks at the group every interval.
func (s *session) loop(ctx context.Context) error {
	for {
		if err := s.tick(ctx); err != nil && ctx.Err() == nil {
			if !transient(err) && !errors.Is(err, lease.ErrConflict) {
				return err
			}
			s.tell(GroupFailed, s.name, 0, 0, err)
		}
		t := time.NewTimer(jitter(s.opt.Interval, 0.1))
		select {
		case <-ctx.Done():
		case <-s.lost:
		case <-s.wake:
		case <-t.C:
		}
		t.Stop()
		if ctx.Err() != nil || s.over() != nil {
			return nil //nolint:nilerr // its end is no fault of the loop
		}
	}
}

// readRoster is one read. A worker that is not in the roster any more is lost.
func (s *session) readRoster(ctx context.Context) (r roster, ok bool, err error) {
	r, sent, err := s.loadRoster(ctx)
	if err != nil {
		return r, false, err
	}
	if !r.has(s.slot, s.lease.Token()) {
		s.lose(&lease.Error{
			Op: "hold", Name: s.workerKey(s.slot), Class: lease.ErrLost, Err: errors.New("the group's roster does not have this worker any more"),
		})
		return r, false, nil
	}
	s.refresh(sent)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roster = r
	return r, true, nil
}

// tick is one read of the roster, and what follows from it. Everything that can take long goes on beside it.
func (s *session) tick(ctx context.Context) error {
	r, ok, err := s.readRoster(ctx)
	if err != nil || !ok {
		return err
	}
	s.handOverSurplus(ctx)
	s.stopIdle(ctx)
	s.start(ctx, &s.looking, func() error {
		buried, err := s.watch(ctx, r)
		if buried {
			s.mu.Lock()
			s.replan = true
			s.mu.Unlock()
			s.nudge()
		}
		return err
	})
	if s.hasWork(r) {
		s.start(ctx, &s.working, func() error { return s.work(ctx) })
	}
	return nil
}

// start runs job beside the loop, unless the one before it is still under way.
func (s *session) start(ctx context.Context, busy *bool, job func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *busy || s.leaving {
		return
	}
	*busy = true
	s.jobs.Go(func() {
		err := job()
		s.mu.Lock()
		*busy = false
		s.mu.Unlock()
		if err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrConflict) {
			s.tell(GroupFailed, s.name, 0, 0, err)
		}
	})
}

// nudge asks for a look now.
func (s *session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// hasWork tells whether the shards' records are worth reading: only the worker that keeps the books reads them every interval.
func (s *session) hasWork(r roster) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := r.index(s.slot)
	now := s.c.Clock()()
	// One audit of all records per interval, whoever's turn it is, costs the group no more than keeping its books.
	audit := s.opt.Interval * time.Duration(max(len(r.members), leastAudit))
	return r.leads(s.slot) || s.replan || len(s.shards) < r.members[i].quota || r.bell != s.bell || now.Slow(s.audited) >= audit ||
		s.toRescue()
}

const leastAudit = 30

func (s *session) toRescue() bool {
	s.Worker.mu.Lock()
	defer s.Worker.mu.Unlock()
	return len(s.rescue) > 0
}

// refresh notes that the roster had this worker at sent. It is trusted for one TTL from then, less the margin: whoever finds
// the roster gone waits that long before it believes that an owner is.
func (s *session) refresh(sent lease.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = sent
	left := s.trust() - s.c.Clock()().Fast(sent)
	if s.expiry == nil {
		s.expiry = time.AfterFunc(left, s.onExpiry)
		return
	}
	s.expiry.Reset(max(left, 0))
}

func (s *session) trust() time.Duration {
	o := s.c.Options()
	return o.TTL - o.Margin
}

func (s *session) onExpiry() { _ = s.check() }

// check is nil while the worker may act for its shards, and ends the session if it may not.
func (s *session) check() error {
	if err := s.over(); err != nil {
		return err
	}
	if err := s.lease.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	since := s.c.Clock()().Fast(s.read)
	s.mu.Unlock()
	if since < s.trust() {
		return nil
	}
	s.lose(&lease.Error{
		Op: "hold", Name: s.workerKey(s.slot), Class: lease.ErrLost, Err: fmt.Errorf("the group's roster was not read for %v", since),
	})
	return s.over()
}

// over is why the session has to end although its lease has not; nil if it has not.
func (s *session) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// lose ends the session: contexts first.
func (s *session) lose(err error) {
	s.mu.Lock()
	first := s.cause == nil
	if first {
		s.cause = err
	}
	s.mu.Unlock()
	if first {
		s.loseAll(err)
		close(s.lost)
	}
}

func (s *session) loseAll(err error) {
	s.mu.Lock()
	s.leaving = true
	all := s.all()
	s.shards = map[string]*Shard{}
	s.mu.Unlock()
	for _, sh := range all {
		sh.lose(err)
	}
}

// all are the session's shards, newest first. s.mu is held.
func (s *session) all() []*Shard {
	all := make([]*Shard, 0, len(s.shards))
	for _, sh := range s.shards {
		all = append(all, sh)
	}
	slices.SortFunc(all, func(a, b *Shard) int { return int(b.since.Slow(a.since)) })
	return all
}

// handOverSurplus asks as many shards to stop as this worker has too many, the newest first.
func (s *session) handOverSurplus(ctx context.Context) {
	s.mu.Lock()
	i, _ := s.roster.index(s.slot)
	surplus := len(s.shards) - s.roster.members[i].quota
	all := s.all()
	s.mu.Unlock()
	var stop []*Shard
	for _, sh := range all {
		if sh.asked() {
			surplus--
		} else {
			stop = append(stop, sh)
		}
	}
	stop = stop[:min(max(surplus, 0), len(stop))]
	for _, sh := range stop {
		sh.handOver(ctx, inOrder)
	}
}

// stopIdle gives up shards whose function makes no progress.
func (s *session) stopIdle(ctx context.Context) {
	if s.opt.Progress == 0 {
		return
	}
	now := s.c.Clock()()
	s.mu.Lock()
	all := s.all()
	s.mu.Unlock()
	for _, sh := range all {
		if sh.idle(now) >= s.opt.Progress {
			sh.handOver(ctx, noProgress)
		}
	}
}

// handAllOver hands every shard back and waits until that is done. The jobs' contexts have ended.
func (s *session) handAllOver(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	s.leaving = true // whatever is claimed from now on is given back by the claim itself
	s.mu.Unlock()
	s.jobs.Wait()
	s.mu.Lock()
	all := s.all()
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, sh := range all {
		sh.handOver(ctx, inOrder)
		wg.Go(func() { <-sh.gone })
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	for handing := true; handing; { // what is not handed back yet is still this worker's
		wait(ctx, over, s.opt.Interval)
		_, _, _ = s.readRoster(ctx) // a failure shortens the trust, and no more
		select {
		case <-over:
			handing = false
		default:
		}
	}
	s.expiry.Stop()
}
