package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Policy says what happens to an occurrence whose run did not succeed.
type Policy string

// The policies.
const (
	// AtLeastOnce runs an occurrence again until a run is recorded as finished: failed and killed runs are retried. The
	// default.
	AtLeastOnce Policy = "at-least-once"
	// AtMostOnce starts an occurrence once. That it was started is stored before the body runs; a killed run is
	// reported in doubt, a failed one as failed before. An acquire whose answer was lost counts as a start.
	AtMostOnce Policy = "at-most-once"
)

// OnUnavailable says what happens when the store cannot be asked.
type OnUnavailable string

// What to do when the store cannot be asked.
const (
	// Fail does not run the body and returns the store's error. The default.
	Fail OnUnavailable = "fail"
	// RunUnguarded runs the body without a lease, for jobs whose lock only saves work. Several hosts may then run it
	// at once. It is not done if the lock was seen held, or for errors that trying again cannot mend.
	RunUnguarded OnUnavailable = "run-unguarded"
)

// Options are a job's options. The zero value of every field is its documented default; a nil *Options is all defaults.
type Options struct {
	// Policy is AtLeastOnce unless told otherwise.
	Policy Policy

	// Wait is how long a delivery that finds its own occurrence running waits for that run's end, within ctx. If it
	// ended well the delivery is already-done, if it died this delivery runs. Default 0: it fails at once, retryably.
	Wait time.Duration

	// EveryOccurrence runs older occurrences too: each has a record of its own instead of the ordered mark. Needs a store
	// with lease.Records and costs two or three requests more a run. One lock per job stays: occurrences do not
	// overlap, and one that finds another running waits for Wait and then fails with ErrBusy.
	EveryOccurrence bool

	// Keep is how long the record of an occurrence is kept. Default 48 h, at least 24 h.
	Keep time.Duration

	// OnUnavailable is Fail unless told otherwise.
	OnUnavailable OnUnavailable
}

// The limits of Options.
const (
	defaultKeep = 48 * time.Hour
	minKeep     = 24 * time.Hour
)

// The errors of Run, beside those of package lease. Each comes inside a *lease.Error with a class of its own.
var (
	// ErrRunning: this occurrence runs elsewhere; deliver it again. Its class is lease.ErrHeld.
	ErrRunning = errors.New("this occurrence runs elsewhere")
	// ErrBusy: another occurrence runs and every one has to (EveryOccurrence); deliver it again. Its class is lease.ErrHeld.
	ErrBusy = errors.New("another occurrence runs")
	// ErrFailedBefore: the occurrence has failed and the policy is AtMostOnce. Its class is lease.ErrPassed.
	ErrFailedBefore = errors.New("this occurrence has failed and is not run again")
)

// Outcome says how a delivery ended.
type Outcome string

// The outcomes. The package's documentation has the table of their meanings.
const (
	Ran          Outcome = "ran"
	AlreadyDone  Outcome = "already-done"
	Stale        Outcome = "stale"
	Busy         Outcome = "busy"
	Running      Outcome = "running"
	Failed       Outcome = "failed"
	FailedBefore Outcome = "failed-before"
	Refused      Outcome = "refused"
	InDoubt      Outcome = "in-doubt"
	Lost         Outcome = "lost"
	NotRun       Outcome = "not-run"
	Paused       Outcome = "paused"  // an operator has paused the job; in a History: did so
	Cleared      Outcome = "cleared" // only in a History: the occurrence was forgotten with Clear
	Resumed      Outcome = "resumed" // only in a History: the pause was ended
)

// Result describes a delivery.
type Result struct {
	Job        string
	Occurrence time.Time // the scheduled instant, UTC, whole seconds
	Outcome    Outcome
	Token      lease.Token   // of this run; of the other's where Outcome is busy or running; 0 where there is none
	Holder     string        // likewise
	Started    time.Time     // when the lock was granted, on the service's clock where that is known, else this host's
	Held       time.Duration // how long the lock was held
	Waited     time.Duration // how long this delivery waited for another
	Unguarded  bool          // the body ran without a lease (RunUnguarded)
	// Release says why the end of the run could not be recorded; nil if it was. The body's own outcome stands: after
	// ran the work is done, but nothing says so, and the next delivery of this occurrence does not know.
	Release error
}

// Job is a job that runs once per occurrence. It keeps no state and is safe for concurrent use.
type Job struct {
	c       *lease.Client
	name    string
	opt     Options
	records lease.Records // with EveryOccurrence
}

// New makes a job. Its name is the name of its lock, which is nobody else's: the value and the marks of the lock are the
// job's ledger. nil options are all defaults. New makes no request; it reports every fault at once.
func New(c *lease.Client, job string, o *Options) (*Job, error) {
	if c == nil {
		return nil, lease.Invalid("configure", job, "the client is nil")
	}
	j := &Job{c: c, name: job}
	if o != nil {
		j.opt = *o
	}
	if j.opt.Policy == "" {
		j.opt.Policy = AtLeastOnce
	}
	if j.opt.OnUnavailable == "" {
		j.opt.OnUnavailable = Fail
	}
	faults := j.check()
	if j.opt.Keep == 0 {
		j.opt.Keep = defaultKeep
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return j, nil
}

// check returns the faults of a job's options; a zero Keep is still unset.
func (j *Job) check() (faults []error) {
	o := j.opt
	fault := func(format string, args ...any) {
		faults = append(faults, lease.Invalid("configure", j.name, format, args...))
	}
	if err := lease.CheckName(j.name); err != nil {
		fault("the job's name is its lock's: %w", err)
	}
	if o.Policy != AtLeastOnce && o.Policy != AtMostOnce {
		fault("policy %q is neither %s nor %s", o.Policy, AtLeastOnce, AtMostOnce)
	}
	if o.OnUnavailable != Fail && o.OnUnavailable != RunUnguarded {
		fault("what to do when the store is unavailable, %q, is neither %s nor %s", o.OnUnavailable, Fail, RunUnguarded)
	}
	if o.Policy == AtMostOnce && o.OnUnavailable == RunUnguarded {
		fault("%s and %s exclude each other: without the store nobody knows what was started", AtMostOnce, RunUnguarded)
	}
	if o.Wait < 0 {
		fault("wait %v is negative", o.Wait)
	}
	if o.Keep != 0 && !o.EveryOccurrence {
		fault("keep %v has no effect without EveryOccurrence", o.Keep)
	} else if o.Keep != 0 && o.Keep < minKeep {
		fault("keep %v is below %v, for which schedulers retry", o.Keep, minKeep)
	}
	l := j.c.Store().Limits()
	if !o.EveryOccurrence {
		if !l.Marks {
			fault("%s keeps no marks, which a job needs", l.Store)
		}
		return faults
	}
	var ok bool
	if j.records, ok = j.c.Store().(lease.Records); !ok {
		fault("%s keeps no records, which EveryOccurrence needs", l.Store)
	}
	if longest := lease.MaxName - len(j.recordKey(0)) + len(j.name); len(j.name) > longest {
		fault("with EveryOccurrence a job's name has at most %d bytes, this one %d", longest, len(j.name))
	}
	return faults
}

// Name is the job's name, and its lock's.
func (j *Job) Name() string { return j.name }

// Options are the options in force, defaults filled in.
func (j *Job) Options() Options { return j.opt }

type occurrenceKey struct{}

// OccurrenceFromContext is the occurrence that the body runs for, in the context that Run gave it.
func OccurrenceFromContext(ctx context.Context) (time.Time, bool) {
	at, ok := ctx.Value(occurrenceKey{}).(time.Time)
	return at, ok
}
