package singleton

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Body is what a job does. ctx ends with the lease, with lease.ErrLost as its cause, and carries the lease
// (lease.FromContext) and the occurrence (OccurrenceFromContext). l is nil in an unguarded run. The lock's value is the
// job's ledger: a body that saves its own there loses it at the end.
type Body = func(ctx context.Context, l *lease.Lease) error

// Run calls fn for the occurrence at, unless it was done before or runs elsewhere; see the table in the package's
// documentation. at is cut to whole UTC seconds; an instant before 1970 is lease.ErrInvalid, as is one more than
// lease.MaxAhead in the future of a service that tells its time.
//
// ctx bounds the attempt, the wait (Options.Wait) and fn. A skip costs one request, a run two. The release is not bounded by
// ctx but by three times the client's CallTimeout, and follows fn's return, never before it: a body that ignores ctx keeps
// the lock for as long as its lease is renewed. A panic of fn is recorded as a failure and goes on.
func (j *Job) Run(ctx context.Context, at time.Time, fn Body) (Result, error) {
	res := Result{Job: j.name, Outcome: NotRun}
	occ, err := seconds(at)
	if err != nil {
		return res, err
	}
	res.Occurrence = instant(occ)
	if fn == nil {
		return res, lease.Invalid("run", j.name, "the body is nil")
	}
	ctx = context.WithValue(ctx, occurrenceKey{}, res.Occurrence)
	began := j.c.Clock()()
	a, waited := j.start(ctx, occ)
	if waited {
		res.Waited = j.c.Clock()().Fast(began)
	}
	switch {
	case a.lease != nil:
		return j.guarded(ctx, a, res, fn)
	case j.opt.OnUnavailable == RunUnguarded && !waited && ctx.Err() == nil && a.outcome == NotRun && transient(a.err):
		return unguarded(ctx, res, fn)
	}
	res.Outcome = a.outcome
	if a.held != nil {
		res.Token, res.Holder = a.held.Token, a.held.Holder
	}
	return res, a.err
}

// attempt is one try to start an occurrence. Without a lease, outcome and err say why not.
type attempt struct {
	lease   *lease.Lease
	record  lease.Record // with EveryOccurrence: the occurrence's, as this run has marked it
	outcome Outcome
	err     error
	held    *lease.HeldError // where outcome is Running or Busy
}

// start tries until the occurrence can run or need not, or Wait is over. It tells whether it has waited.
func (j *Job) start(ctx context.Context, occ int64) (a attempt, waited bool) {
	waiting, cancel := context.WithTimeout(ctx, j.opt.Wait)
	defer cancel()
	try := j.attempt
	if j.opt.EveryOccurrence {
		try = j.attemptRecord
	}
	for {
		a = try(ctx, occ)
		if a.held == nil || a.err == nil || j.opt.Wait == 0 {
			return a, waited
		}
		waited = true
		if err := j.c.Wait(waiting, a.held); err != nil {
			if waiting.Err() == nil {
				return attempt{outcome: NotRun, err: err}, waited
			}
			return a, waited
		}
	}
}

// attempt takes the lock on the condition of the ordered marks, in one request.
func (j *Job) attempt(ctx context.Context, occ int64) attempt {
	l, err := j.c.TryAcquireMark(ctx, j.name, lease.Mark{Occurrence: occ, AtMostOnce: j.opt.Policy == AtMostOnce})
	if err == nil {
		return attempt{lease: l}
	}
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		return j.heldBy(occ, held, held.Marks.Running == occ)
	}
	passed, ok := errors.AsType[*lease.PassedError](err)
	if !ok {
		return attempt{outcome: NotRun, err: err}
	}
	switch m := passed.Marks; {
	case IsPaused(m):
		return attempt{outcome: Paused}
	case m.Finished == occ:
		return attempt{outcome: AlreadyDone}
	case m.Finished > occ || m.Started > occ:
		return attempt{outcome: Stale}
	}
	runs, _ := decodeLedger(passed.Value) // a damaged ledger proves nothing: the occurrence stays in doubt
	if e, ok := runs.recorded(occ, passed.Token); ok {
		return j.failedBefore(e)
	}
	return j.inDoubt(occ)
}

// heldBy says that the job runs; own: for this occurrence.
func (j *Job) heldBy(occ int64, held *lease.HeldError, own bool) attempt {
	a := attempt{outcome: Busy, held: held}
	switch {
	case own:
		a.outcome = Running
		a.err = j.fail(occ, lease.ErrHeld, fmt.Errorf("%w: %w", ErrRunning, held), "deliver it again")
	case j.opt.EveryOccurrence:
		a.err = j.fail(occ, lease.ErrHeld, fmt.Errorf("%w: %w", ErrBusy, held), "deliver it again")
	}
	return a
}

func (j *Job) failedBefore(e Entry) attempt {
	err := fmt.Errorf("%w: its run with token %d ended as %s", ErrFailedBefore, e.Token, e.Outcome)
	return attempt{
		outcome: FailedBefore, err: j.fail(e.Occurrence.Unix(), lease.ErrPassed, err, "Clear it to let it run once more"),
	}
}

func (j *Job) inDoubt(occ int64) attempt {
	return attempt{outcome: InDoubt, err: j.fail(occ, lease.ErrInDoubt,
		errors.New("it was started and has no recorded end: its runner died, or could not record it"),
		"find out what it did, then Clear it to let it run once more")}
}

func (j *Job) fail(occ int64, class, err error, hint string) error {
	return &lease.Error{
		Op: "run the occurrence " + stamp(occ) + " of", Store: j.c.Store().Limits().Store, Name: j.name, Class: class, Err: err,
		Hint: hint,
	}
}

func transient(err error) bool {
	return errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrInDoubt)
}
