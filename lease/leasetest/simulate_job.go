package leasetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// ownHolder begins the names of holders that are one attempt each: a refusal that names it as the holder is wrong.
const ownHolder = "run "

// jobName is a job of the simulation; every second one may run once at most.
func jobName(i int) (name string, atMostOnce bool) { return fmt.Sprintf("job-%d", i), i%2 == 1 }

const jobs = 2

// run is one run of a job's occurrence, by the bare store: with retries, and with ends that no client makes, such as a crash in the
// middle of which the host lives on.
type run struct {
	*worker
	req lease.Request

	mu    sync.Mutex
	grant lease.Grant
	over  bool
}

// runJobs goes on until ctx ends. It is of the same host as w, whose client has another holder.
func (w *worker) runJobs(ctx context.Context) {
	if !w.host.store.Limits().Marks {
		return
	}
	for ctx.Err() == nil {
		w.rest(ctx, w.TTL/2)
		r := &run{worker: w}
		name, once := jobName(w.rand.IntN(jobs))
		id := fmt.Sprintf("%016x%016x", w.rand.Uint64(), w.rand.Uint64())
		r.req = lease.Request{
			Name: name, Holder: ownHolder + id[:8], TTL: w.TTL, Attempt: id, Since: w.host.clock.Now(),
			Mark: &lease.Mark{Occurrence: w.occurrence(), AtMostOnce: once},
		}
		switch w.rand.IntN(4) {
		case 0: // the job's lock is taken for no occurrence
			r.req.Mark = nil
		case 1: // another part of the program wants what its client may have
			r.req.Mark, r.req.Name = nil, w.name(w.rand.IntN(w.Names))
		}
		if r.insist(ctx) {
			r.play(ctx)
		}
	}
}

// occurrence is the present one, or the one before: there is one every other TTL.
func (w *worker) occurrence() int64 {
	every := int64(2 * w.TTL / time.Second)
	now := time.Now().Unix() - int64(w.rand.IntN(2))*every
	return now - now%every
}

// insist sends the attempt until there is an answer, or not for much longer. What may have been granted is given back.
func (r *run) insist(ctx context.Context) bool {
	doubt, tries := false, 3
	switch r.rand.IntN(5) {
	case 0:
		lost := r.host.faults.Add(Rule{Op: "acquire", Kind: DropAnswer, Nth: 1})
		defer lost.Stop()
	case 1:
		slow := r.host.faults.Add(Rule{Op: "acquire", Kind: DelayAfter, Delay: r.within(r.TTL / 3), Nth: 1 + r.rand.IntN(3)})
		defer slow.Stop()
	case 2: // it is given up at once, and given back when it may have arrived
		tries = 1
		late := r.host.faults.Add(Rule{Op: "acquire", Kind: DelayBefore, Delay: r.TTL/2 + r.within(r.TTL/2), Nth: 1 + r.rand.IntN(2)})
		defer late.Stop()
	}
	for range tries {
		try, cancel := context.WithTimeout(ctx, r.within(r.TTL/2))
		g, err := r.host.store.TryAcquire(try, r.req)
		cancel()
		if err == nil && r.host.trust(g) > r.margin() {
			r.grant = g
			r.history.Hold(g.Name, g.Holder, g.Token, r.trusts)
			return true
		}
		if err == nil { // too late
			_ = r.release(g, lease.Final{})
			return false
		}
		doubt = doubt || errors.Is(err, lease.ErrInDoubt)
		if !errors.Is(err, lease.ErrInDoubt) && !errors.Is(err, lease.ErrUnavailable) {
			break
		}
		r.rest(ctx, r.TTL/4)
	}
	if doubt {
		if tries == 1 {
			r.sum.count("given back late")
			r.rest(ctx, 2*r.TTL)
		}
		_ = r.release(lease.Grant{Request: r.req}, lease.Final{})
	}
	return false
}

// margin is for clocks that drift.
func (r *run) margin() time.Duration { return r.TTL / 10 }

func (r *run) trusts() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = r.over || r.host.trust(r.grant) <= r.margin()
	return !r.over
}

// play holds what was granted for a while, and ends it in one of the ways that there are.
func (r *run) play(ctx context.Context) {
	rounds := r.rand.IntN(4)
	if r.rand.IntN(3) == 0 {
		rounds *= 5
	}
	for range rounds {
		r.rest(ctx, r.TTL/3)
		if !r.trusts() {
			break
		}
		if err := r.renew(ctx); errors.Is(err, lease.ErrLost) {
			r.end()
			return
		}
	}
	m := r.grant.Marks
	switch r.rand.IntN(7) {
	case 6: // it has overslept: what it leaves arrives late, if nobody has taken the lock
		for r.trusts() {
			r.rest(ctx, r.TTL/4)
			if ctx.Err() != nil {
				break
			}
		}
		r.end()
		r.sum.count("released late")
		late := r.host.faults.Add(Rule{Op: "release", Kind: DelayBefore, Delay: r.within(r.TTL / 2), Nth: 1 + r.rand.IntN(3)})
		defer late.Stop()
		v := version{r.grant.Token, r.rand.Uint64N(1 << 20)}
		_ = r.release(r.grant, lease.Final{Value: v.value(), Marks: doneMarks(m)})
	case 0, 1: // it crashes: its lease ends by itself
	case 2: // it fails
		r.end()
		_ = r.release(r.grant, lease.Final{})
	case 3: // it is done, and leaves a value
		r.end()
		v := version{r.grant.Token, r.rand.Uint64N(1 << 20)}
		_ = r.release(r.grant, lease.Final{Value: v.value(), Marks: doneMarks(m)})
	default:
		r.end()
		_ = r.release(r.grant, lease.Final{Marks: doneMarks(m)})
	}
}

// doneMarks are the marks that a run leaves which has finished its occurrence; nil if it ran for none.
func doneMarks(m lease.Marks) *lease.Marks {
	if m.Running == 0 {
		return nil
	}
	return &lease.Marks{Started: m.Started, Finished: max(m.Finished, m.Running)}
}

func (r *run) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.within(r.TTL/2))
	defer cancel()
	switch r.rand.IntN(5) {
	case 0: // one that arrives when newer ones have
		late := r.host.faults.Add(Rule{Op: "renew", Kind: DelayBefore, Delay: r.TTL + r.within(r.TTL), Nth: 1})
		defer late.Stop()
	case 1:
		slow := r.host.faults.Add(Rule{Op: "renew", Kind: DelayAfter, Delay: r.within(r.TTL / 3), Nth: 1 + r.rand.IntN(2)})
		defer slow.Stop()
	}
	g, err := r.host.store.Renew(ctx, r.grant)
	if err != nil || !r.trusts() { // a late success revives nothing
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grant = g
	return nil
}

// end makes the run trust no more.
func (r *run) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.history.Release(r.req.Name, r.grant.Token)
}

// release tries three times, as if the first tries were not known of.
func (r *run) release(g lease.Grant, f lease.Final) error {
	var err error
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), r.TTL/2)
		err = r.host.store.Release(ctx, g, f)
		cancel()
		if !errors.Is(err, lease.ErrInDoubt) && !errors.Is(err, lease.ErrUnavailable) {
			return err
		}
		r.rest(context.Background(), r.TTL/4)
	}
	return err
}
