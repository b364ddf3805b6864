package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// run is one run of the body under a lease.
type run struct {
	*Job
	attempt
	grant lease.Grant // as it was given
	began lease.Reading
	res   Result
}

// guarded calls fn under a's lease and records how it ended.
func (j *Job) guarded(ctx context.Context, a attempt, res Result, fn Body) (Result, error) {
	g := a.lease.Grant()
	res.Token, res.Holder, res.Started = g.Token, g.Holder, grantedAt(g)
	r := &run{Job: j, attempt: a, grant: g, began: j.c.Clock()(), res: res}
	held, cancel := a.lease.Context(ctx)
	defer cancel()
	returned := false
	defer func() { // without recover: the panic keeps its stack, and runtime.Goexit is covered
		if !returned {
			_ = r.finish(ctx, errAborted) // the panic says more
		}
	}()
	err := fn(held, a.lease)
	returned = true
	err = r.finish(ctx, err)
	return r.res, err
}

// errAborted stands for the error of a body that never returned.
var errAborted = errors.New("the body panicked")

func unguarded(ctx context.Context, res Result, fn Body) (Result, error) {
	res.Unguarded = true
	err := fn(ctx, nil)
	res.Outcome = outcomeOf(err, nil)
	return res, err
}

// grantedAt is when g was granted, by the service's clock if it tells its time.
func grantedAt(g lease.Grant) time.Time {
	if g.Expires.IsZero() {
		return g.Sent.Wall
	}
	return g.Expires.Add(-g.TTL)
}

// outcomeOf is the outcome of a body that returned err; ended says why its lease was over by then, nil if it was not.
func outcomeOf(err, ended error) Outcome {
	switch {
	case errors.Is(err, lease.ErrStale):
		return Refused
	case ended != nil:
		return Lost
	case err != nil:
		return Failed
	}
	return Ran
}

// finish releases the lock and leaves the record of a body that returned err. It returns Run's error.
func (r *run) finish(ctx context.Context, err error) error {
	ended := r.lease.Err()
	e := Entry{
		Occurrence: r.res.Occurrence, Outcome: Ran, Token: r.grant.Token, Started: r.res.Started,
		Took: r.c.Clock()().Fast(r.began),
	}
	if err != nil { // work that was done counts as done even without a lease, if the store says that nobody else began
		e.Outcome = outcomeOf(err, ended)
	}
	unrecorded := r.closeRecord(ctx, e)
	released := r.lease.ReleaseWith(ctx, r.final(e))
	r.res.Held = r.c.Clock()().Fast(r.grant.Sent)
	switch {
	case ended != nil:
	case errors.Is(released, lease.ErrLost):
		ended = released
	case errors.Is(unrecorded, lease.ErrConflict):
		ended = r.fail(e.Occurrence.Unix(), lease.ErrLost, errors.New("another run of it has begun"), "")
	default:
		r.res.Release = errors.Join(unrecorded, released)
	}
	r.res.Outcome = outcomeOf(err, ended)
	switch {
	case err == nil:
		return ended
	case ended == nil || errors.Is(err, lease.ErrLost):
		return err
	}
	return errors.Join(err, ended)
}

// final is what the release leaves with the lock after the run e: the ledger and, if it is done, its mark.
func (r *run) final(e Entry) lease.Final {
	runs, _ := decodeLedger(r.grant.Value) // what is not a ledger is replaced by one
	f := lease.Final{Value: append(runs, e).encode()}
	if e.Outcome == Ran && !r.opt.EveryOccurrence {
		m, occ := r.grant.Marks, e.Occurrence.Unix()
		f.Marks = &lease.Marks{Started: max(m.Started, occ), Finished: max(m.Finished, occ)}
	}
	return f
}
