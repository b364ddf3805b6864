package singleton

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// With EveryOccurrence an occurrence has a record of its own, which holds its last run as a ledger of one entry. It is
// written only under the job's lock and only by compare-and-swap, so that a run whose lock was taken cannot end the record
// of its successor's.

const (
	recordPrefix = "singleton/"
	storeTries   = 3
)

func (j *Job) recordKey(occ int64) string { return recordPrefix + j.name + "@" + stamp(occ) }

// attemptRecord takes the lock and marks the occurrence's record as running. The record is read first: an occurrence that
// is done then costs one read.
func (j *Job) attemptRecord(ctx context.Context, occ int64) attempt {
	for try := 1; ; try++ {
		a := j.attemptRecordOnce(ctx, occ)
		if !errors.Is(a.err, lease.ErrConflict) || try == storeTries {
			return a
		}
	}
}

// attemptRecordOnce fails with lease.ErrConflict if the record has changed between its reading and the grant of the lock.
func (j *Job) attemptRecordOnce(ctx context.Context, occ int64) attempt {
	rec, last, err := j.load(ctx, occ)
	switch {
	case err != nil:
		return attempt{outcome: NotRun, err: err}
	case last.Outcome == Ran:
		return attempt{outcome: AlreadyDone}
	}
	once := j.opt.Policy == AtMostOnce
	if once && last.Outcome != "" && last.Outcome != Running {
		return j.failedBefore(last)
	}
	l, err := j.c.TryAcquire(ctx, j.name)
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		return j.heldBy(occ, held, last.Outcome == Running && (held.Token == last.Token || held.Token == 0))
	} else if err != nil {
		return attempt{outcome: NotRun, err: err}
	}
	if IsPaused(l.Marks()) {
		return j.giveUp(ctx, l, attempt{outcome: Paused})
	}
	if once && last.Outcome == Running {
		return j.giveUp(ctx, l, j.doubted(ctx, occ, rec))
	}
	g := l.Grant()
	e := Entry{Occurrence: instant(occ), Outcome: Running, Token: g.Token, Started: grantedAt(g)}
	if e.Occurrence.After(e.Started.Add(lease.MaxAhead)) {
		err := lease.Invalid("acquire", j.name, "the occurrence %s is more than %v ahead of %s", stamp(occ), lease.MaxAhead,
			e.Started.UTC().Format(time.RFC3339))
		return j.giveUp(ctx, l, attempt{outcome: NotRun, err: err})
	}
	if e.Occurrence.Before(e.Started.Add(-j.opt.Keep)) {
		return j.giveUp(ctx, l, attempt{outcome: Stale}) // its record may have been dropped already
	}
	rec, err = j.swap(ctx, rec, e)
	if err != nil {
		return j.giveUp(ctx, l, attempt{outcome: NotRun, err: err})
	}
	return attempt{lease: l, record: rec}
}

// doubted says what became of a run that rec shows as running although the lock is free.
func (j *Job) doubted(ctx context.Context, occ int64, rec lease.Record) attempt {
	now, _, err := j.load(ctx, occ)
	switch {
	case err != nil:
		return attempt{outcome: NotRun, err: err}
	case now.Version != rec.Version: // it ended between the reading and the grant
		return attempt{outcome: NotRun, err: j.fail(occ, lease.ErrConflict, nil, "deliver it again")}
	}
	return j.inDoubt(occ)
}

// giveUp releases a lock whose occurrence is not run. The observer is told if that fails; the lock then ends by itself.
func (j *Job) giveUp(ctx context.Context, l *lease.Lease, a attempt) attempt {
	_ = l.Release(ctx)
	return a
}

// closeRecord writes how a run ended into its record.
func (r *run) closeRecord(ctx context.Context, e Entry) error {
	if !r.opt.EveryOccurrence {
		return nil
	}
	_, err := r.swap(context.WithoutCancel(ctx), r.record, e)
	return err
}

// load reads the record of occ. An occurrence that was never run, or was cleared, has an empty entry.
func (j *Job) load(ctx context.Context, occ int64) (lease.Record, Entry, error) {
	var rec lease.Record
	err := j.insist(ctx, func(ctx context.Context) (err error) {
		rec, err = j.records.Load(ctx, j.recordKey(occ))
		return err
	})
	if err != nil {
		return rec, Entry{}, err
	}
	e, err := decodeRecord(rec)
	return rec, e, err
}

func decodeRecord(rec lease.Record) (Entry, error) {
	runs, err := decodeLedger(rec.Value)
	if err != nil {
		return Entry{}, &lease.Error{Op: "read the record", Name: rec.Key, Class: lease.ErrMisconfigured, Err: err}
	}
	if len(runs) == 0 || runs[len(runs)-1].Outcome == Cleared {
		return Entry{}, nil
	}
	return runs[len(runs)-1], nil
}

// swap replaces the record old by e. If an answer is lost, reading the record tells whether the write was done.
func (j *Job) swap(ctx context.Context, old lease.Record, e Entry) (lease.Record, error) {
	value := ledger{e}.encode()
	var rec lease.Record
	err := j.insist(ctx, func(ctx context.Context) (err error) {
		rec, err = j.records.Swap(ctx, old, value, j.opt.Keep+time.Hour) // a little longer than occurrences are taken
		if !errors.Is(err, lease.ErrInDoubt) && !errors.Is(err, lease.ErrConflict) {
			return err
		}
		have, loadErr := j.records.Load(ctx, old.Key)
		if loadErr == nil && have.Version > old.Version && bytes.Equal(have.Value, value) {
			rec = have
			return nil
		}
		return err
	})
	return rec, err
}

// insist tries f again while the store is out or its answer is lost.
func (j *Job) insist(ctx context.Context, f func(context.Context) error) error {
	for try := 1; ; try++ {
		callCtx, cancel := context.WithTimeout(ctx, j.c.Options().CallTimeout)
		err := f(callCtx)
		cancel()
		if err == nil || !transient(err) || try == storeTries {
			return err
		}
		select {
		case <-time.After(time.Duration(try) * 100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// scan calls f with the records of the job and what they say. Another job's name may begin like this one's.
func (j *Job) scan(ctx context.Context, f func(lease.Record, Entry) error) error {
	prefix := recordPrefix + j.name + "@"
	for rec, err := range j.records.Scan(ctx, prefix) {
		if err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339, strings.TrimPrefix(rec.Key, prefix))
		if err != nil || rec.Key != j.recordKey(at.Unix()) {
			continue
		}
		e, err := decodeRecord(rec)
		if err != nil {
			return err
		}
		if e.Outcome == "" {
			continue
		}
		if err := f(rec, e); err != nil {
			return err
		}
	}
	return nil
}
