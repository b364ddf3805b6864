package singleton

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// History is what the store knows about a job's runs.
type History struct {
	Job string
	// Runs are the newest runs, newest first. One that was started and has no recorded end, and does not run now, is
	// there with the outcome InDoubt.
	Runs []Entry
	// Running is what runs now, nil if nothing does.
	Running *Current
	// Paused is the pause of the job, nil if it is not paused. By is empty if the ledger does not say who paused it.
	Paused *Pause
	// Started and Finished are the newest occurrence that was ever started and that was finished, zero for none. With
	// EveryOccurrence they are not kept.
	Started, Finished time.Time
	// Fault says why the lock's value could not be read as a ledger; Runs are then empty. The next run replaces it.
	Fault error
}

// Current is a run that has not ended.
type Current struct {
	Occurrence time.Time // zero while the lock is held for another purpose, such as Clear
	Holder     string
	Token      lease.Token
	Since      time.Time // the times are on the service's clock
	Expires    time.Time // moves on with every renewal
}

// History describes the job's runs. It makes one request; with EveryOccurrence it also scans the job's records, which
// reads a whole table on some services. ctx bounds it.
func (j *Job) History(ctx context.Context) (History, error) {
	info, err := j.c.Inspect(ctx, j.name)
	if err != nil {
		return History{}, err
	}
	h := History{Job: j.name}
	if IsPaused(info.Marks) {
		h.Paused, info.Marks = pauseOf(info)
	}
	h.Started, h.Finished = instant(info.Marks.Started), instant(info.Marks.Finished)
	runs, fault := decodeLedger(info.Value)
	if fault != nil {
		h.Fault = &lease.Error{Op: "read the history of", Name: j.name, Class: lease.ErrMisconfigured, Err: fault}
	}
	h.Runs = slices.Clone(runs)
	slices.Reverse(h.Runs)
	if info.State == lease.Held {
		h.Running = &Current{
			Occurrence: instant(info.Marks.Running), Holder: info.Holder, Token: info.Token, Since: info.Since, Expires: info.Expires,
		}
	}
	if j.opt.EveryOccurrence {
		return h, j.addRecords(ctx, &h)
	}
	if occ := unended(info, runs); occ > 0 {
		e := Entry{Occurrence: instant(occ), Token: info.Token, Started: info.Since}
		if n := len(runs); n > 0 && runs[n-1].Token == info.Token { // an operator had the lock since
			e.Token, e.Started = 0, time.Time{}
		}
		h.addDoubt(e)
	}
	return h, nil
}

// unended is the occurrence whose run was started and has no recorded end, although nothing runs; 0 if there is none.
func unended(info lease.Info, runs ledger) int64 {
	m := info.Marks
	switch {
	case info.State == lease.Held:
		return 0
	case m.Running > 0: // nobody released it
		return m.Running
	case m.Started <= m.Finished:
		return 0
	}
	if _, ok := runs.recorded(m.Started, info.Token); ok {
		return 0
	}
	return m.Started
}

// addRecords adds what only the occurrences' records tell: what runs, and what began and has no end.
func (j *Job) addRecords(ctx context.Context, h *History) error {
	return j.scan(ctx, func(_ lease.Record, e Entry) error {
		switch {
		case e.Outcome != Running:
		case h.Running != nil && h.Running.Token == e.Token:
			h.Running.Occurrence = e.Occurrence
		default:
			h.addDoubt(e)
		}
		return nil
	})
}

func (h *History) addDoubt(e Entry) {
	e.Outcome, e.Took = InDoubt, 0
	i := slices.IndexFunc(h.Runs, func(r Entry) bool { return r.Token < e.Token })
	if i < 0 {
		i = len(h.Runs)
	}
	h.Runs = slices.Insert(h.Runs, i, e)
}

// Clear forgets the occurrence at and every newer one, so that they run once more when they are delivered: one in doubt, one
// that failed under AtMostOnce, or a bogus one of the future that makes all others stale. It leaves an entry in the history.
// The marks go back to the newest runs before at that the history still has; older occurrences may then run again. With
// AtMostOnce nothing older does: those before at, or before now if at lies in the future, stay as good as started.
//
// A paused job stays paused, unless what its ledger said of the pause cannot be read.
//
// Clear takes the job's lock and fails with lease.ErrHeld while the job runs or a dead run's lease has not ended. It makes
// two requests (with EveryOccurrence one more per record, and a scan), bounded by ctx and the client's CallTimeout.
func (j *Job) Clear(ctx context.Context, at time.Time) error {
	occ, err := seconds(at)
	if err != nil {
		return err
	}
	l, err := j.c.TryAcquire(ctx, j.name)
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		return &lease.Error{
			Op: "clear", Store: j.c.Store().Limits().Store, Name: j.name, Class: lease.ErrHeld, Err: held,
			Hint: "the job runs, or has died and its lease has not ended; clear it after that",
		}
	} else if err != nil {
		return err
	}
	g := l.Grant()
	have := g.Marks
	var pause *Pause // stays
	if IsPaused(have) {
		if pause = decodePause(g.Value); pause != nil {
			have = pause.marks
		}
	}
	runs, _ := decodeLedger(g.Value) // what is not a ledger is replaced by one
	e := Entry{Occurrence: instant(occ), Outcome: Cleared, Token: g.Token, Started: grantedAt(g)}
	m := runs.marksBefore(occ, have)
	if j.opt.Policy == AtMostOnce { // a killed run before it has no entry, and must not start again
		m.Started = max(m.Started, min(occ-1, e.Started.Unix()))
	}
	f := lease.Final{Value: append(runs, e).encodePaused(pause), Marks: &m}
	if pause != nil {
		pause.marks = m
		f = lease.Final{Value: append(runs, e).encodePaused(pause), Marks: &lease.Marks{Started: pausedMark, Finished: pausedMark}}
	}
	if j.opt.EveryOccurrence {
		if err := j.clearRecords(ctx, occ, e); err != nil {
			return errors.Join(err, l.Release(ctx))
		}
	}
	return l.ReleaseWith(ctx, f)
}

func (j *Job) clearRecords(ctx context.Context, occ int64, cleared Entry) error {
	return j.scan(ctx, func(rec lease.Record, e Entry) error {
		if e.Occurrence.Unix() < occ {
			return nil
		}
		_, err := j.swap(ctx, rec, cleared)
		return err
	})
}
