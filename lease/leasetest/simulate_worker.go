package leasetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// worker is a process on a host: it acquires locks, writes guarded data under them, and is not always careful.
type worker struct {
	*simulation
	host   *host
	rand   *rand.Rand
	client *lease.Client
	guard  fence.Guard
	saves  uint64
	write  func(ctx context.Context, l *lease.Lease) (passed bool, err error) // nil: the store has none

	atRelease bool // from when on it is refused
}

// work goes on until ctx ends, on one host after the other.
func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		w.client, w.guard = w.ownClient(), w.host.guard()
		if b, ok := w.backend.(Checked); ok {
			w.write, w.atRelease = b.Write(Host{Name: w.host.name, Clock: w.host.clock.Now, Faults: w.host.faults}, w.host.bare())
		}
		weather, over := context.WithCancel(ctx)
		var wg sync.WaitGroup
		chance := rand.New(rand.NewPCG(w.rand.Uint64(), 0)) //nolint:gosec // repeatable on purpose
		wg.Go(func() { w.weather(weather, chance) })
		runner := &worker{simulation: w.simulation, host: w.host, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 1))} //nolint:gosec // likewise
		wg.Go(func() { runner.runJobs(weather) })
		crashed := false
		for !crashed && ctx.Err() == nil {
			crashed = w.turn(ctx)
			w.rest(ctx, w.TTL/4)
		}
		over()
		wg.Wait()
		if crashed {
			w.host = w.replace()
		}
	}
}

// ownClient is the client of w's host. Some are so patient that an answer can come when the lease that it grants is over.
func (w *worker) ownClient() *lease.Client {
	var o lease.Options
	if w.rand.IntN(3) == 0 {
		o.CallTimeout = 2 * w.TTL
	}
	return w.host.clientWith(o)
}

// turn is one hold, or one attempt in vain. crashed means that the host is no more.
func (w *worker) turn(ctx context.Context) (crashed bool) {
	name := w.name(w.rand.IntN(w.Names))
	l := w.try(ctx, name)
	if l == nil {
		return false
	}
	w.history.Watch(l)
	for range w.rand.IntN(6) {
		w.rest(ctx, w.TTL/2)
		w.act(l)
	}
	switch w.rand.IntN(12) {
	case 0: // its host is gone, and what it had under way with it
		w.host.faults.Add(Rule{Kind: BlackHole})
		return true
	case 1, 2: // it was paused, and goes on where it was without a look
		w.host.cut(w.TTL*2, func() { w.rest(context.Background(), 2*w.TTL) })
		w.put(l)
		w.writeChecked(l)
	}
	w.history.Release(name, l.Token())
	var final lease.Final
	if w.rand.IntN(4) == 0 {
		final.Value = w.nextValue(l)
	}
	_ = l.ReleaseWith(context.Background(), final) // what it says is checked by the books
	if w.rand.IntN(3) == 0 {
		w.rest(ctx, w.TTL/4)
		w.writeChecked(l)
	}
	return false
}

// try asks for name in one of the ways that users have, some of which are cut off in the middle.
func (w *worker) try(ctx context.Context, name string) *lease.Lease {
	patience := w.within(2 * w.TTL)
	ask := w.client.Acquire
	if w.rand.IntN(3) == 0 {
		ask = w.client.TryAcquire
		if w.rand.IntN(3) == 0 {
			patience = w.within(200 * time.Millisecond)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := ask(ctx, name)
	if err != nil && !classified(err) {
		w.Errorf("acquire: the error has no class, or several: %v", err)
	}
	if l != nil && l.Err() != nil && !w.books.lossWasTold(l.Grant()) {
		w.Errorf("acquire: the lease of %q was over when it was handed out: %v", name, l.Err())
	}
	return l
}

// act does what holders do.
func (w *worker) act(l *lease.Lease) {
	switch w.rand.IntN(6) {
	case 0:
		if l.Err() == nil {
			w.put(l)
		}
	case 1: // without a look at the lease: the guard must do without it
		w.put(l)
	case 2:
		if w.rand.IntN(2) == 0 { // the first arrives when the second has
			late := w.host.faults.Add(Rule{Op: "save", Kind: DelayBefore, Delay: w.within(w.TTL / 2), Nth: 1})
			w.save(l, w.TTL/6)
			late.Stop()
		}
		w.save(l, w.TTL)
	case 3:
		ctx, cancel := context.WithTimeout(context.Background(), w.TTL)
		defer cancel()
		_, _ = w.guard.Get(ctx, l.Name()) // the history checks what it gives
	case 4:
		w.writeChecked(l)
	}
}

// save keeps the next value with l, and waits for that for at most d.
func (w *worker) save(l *lease.Lease, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), w.within(d))
	defer cancel()
	_ = l.Save(ctx, w.nextValue(l))
}

// writeChecked makes a write that depends on l, whether or not that is over.
func (w *worker) writeChecked(l *lease.Lease) {
	if w.write == nil {
		return
	}
	ctx, cancel := context.WithTimeout(annotate(context.Background(), "checked", l.Name()), w.TTL)
	defer cancel()
	began := time.Now()
	passed, err := w.write(ctx, l)
	if passed {
		w.books.wrote(l.Grant(), began, w.atRelease)
	}
	if passed || err == nil {
		w.sum.wroteChecked(passed)
	}
}

// nextValue is the next that l's holder keeps with the lock.
func (w *worker) nextValue(l *lease.Lease) []byte {
	w.saves++
	return version{l.Token(), w.saves}.value()
}

// put writes guarded data in the name of l.
func (w *worker) put(l *lease.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), w.TTL)
	defer cancel()
	err := fence.Put(ctx, w.guard, l, l.Name(), fmt.Append(nil, w.rand.Uint64()))
	w.sum.wrote(err)
	if w.rand.IntN(8) == 0 { // somebody else with the same token, which is nobody's but l's
		err := w.guard.Put(ctx, l.Name(), fmt.Append(nil, w.rand.Uint64()), l.Token(), "impostor")
		w.sum.wrote(err)
	}
}

// cut takes the host off the network for d while f runs.
func (h *host) cut(d time.Duration, f func()) {
	x := h.faults.Add(Rule{Kind: BlackHole})
	end := time.AfterFunc(d, x.Stop)
	f()
	end.Stop()
	x.Stop()
}

// rest waits for a while, at most d, or until ctx ends.
func (w *worker) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(w.within(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// within is a time up to d, in odd nanoseconds, so that few things happen at one instant.
func (w *worker) within(d time.Duration) time.Duration {
	return 1 + time.Duration(w.rand.Int64N(int64(d)))
}

// weather lets things fail on the host until ctx ends.
func (w *worker) weather(ctx context.Context, r *rand.Rand) {
	within := func(d time.Duration) time.Duration { return 1 + time.Duration(r.Int64N(int64(d))) }
	wait := func(d time.Duration) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	h := w.host
	wall := r.IntN(2) == 0 // which of its clocks is bad
	h.clock.Drift(float64(r.IntN(301) - 150))
	for ctx.Err() == nil {
		wait(within(w.TTL))
		switch r.IntN(4) {
		case 0:
			w.badClock(r, wall, func() { wait(within(2 * w.TTL)) })
		default:
			x := h.faults.Add(anyRule(r, w.TTL))
			wait(within(w.TTL + w.TTL/2))
			x.Stop()
			w.sum.fault(x)
		}
	}
}

// badClock makes one of the host's clocks wrong, for a time or for good.
func (w *worker) badClock(r *rand.Rand, wall bool, wait func()) {
	freeze := w.host.clock.FreezeMono
	kind := "monotonic clock stands still"
	if wall {
		freeze, kind = w.host.clock.FreezeWall, "wall clock stands still"
		if r.IntN(2) == 0 {
			w.sum.count("wall clock is set")
			w.host.step()
			w.host.clock.StepWall(time.Duration(r.Int64N(int64(2*time.Hour))) - time.Hour)
			return
		}
	}
	w.sum.count(kind)
	freeze(true)
	wait()
	freeze(false)
}

// step takes note that the wall clock is set.
func (h *host) step() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stepped = time.Now()
}

// steppedSince tells whether the wall clock was set since t: then what was not trusted any more may look as if it were.
func (h *host) steppedSince(t time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stepped.After(t)
}

var leaseOps = []string{"acquire", "renew", "release", "save"}

var simulatedOps = append([]string{"", "", "put"}, leaseOps...)

var simulatedKinds = []Kind{DropRequest, DropAnswer, DelayBefore, DelayAfter, Duplicate, Fail, FailAfter, BlackHole}

// longestDelay is how long a request or an answer is under way at most.
func longestDelay(ttl time.Duration) time.Duration { return 2 * ttl }

func anyRule(r *rand.Rand, ttl time.Duration) Rule {
	rule := Rule{
		Op: simulatedOps[r.IntN(len(simulatedOps))], Kind: simulatedKinds[r.IntN(len(simulatedKinds))], Every: 1 + r.IntN(3),
	}
	if rule.Kind == Duplicate { // not of a put: within one token, a guard takes what comes as it comes
		rule.Op = leaseOps[r.IntN(len(leaseOps))]
	}
	switch rule.Kind {
	case DelayBefore, DelayAfter, Duplicate:
		rule.Delay = 1 + time.Duration(r.Int64N(int64(longestDelay(ttl))))
	case Fail:
		rule.Failure = []Failure{Throttled, Unavailable, Internal}[r.IntN(3)]
	case FailAfter: // what is throttled was not done
		rule.Failure = []Failure{Unavailable, Internal}[r.IntN(2)]
	case DropRequest, DropAnswer, BlackHole:
	}
	return rule
}
