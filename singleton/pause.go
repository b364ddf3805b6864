package singleton

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// A pause has to be seen by every deliverer without a request more, and by the condition of the same write that grants the lock;
// a record beside the lock would cost each delivery a read, and leave a gap between the read and the grant. So it is kept
// in the marks: while a job is paused both say the last instant there is, which refuses every occurrence. What they said
// before is kept in the ledger, and put back by Resume. Deliverers that know nothing of pauses see a stale occurrence,
// and skip it as well. EveryOccurrence does not go by the marks; there they are looked at under the lock, before the
// body.

// pausedMark is the last occurrence that could be: no occurrence lies after it.
const pausedMark = 253402300799 // 9999-12-31T23:59:59Z

// maxReason bounds who and why together, so that the ledger keeps room for runs.
const maxReason = 120

// IsPaused tells whether marks are those of a paused job.
func IsPaused(m lease.Marks) bool { return m.Finished == pausedMark }

// Pause is a pause of a job.
type Pause struct {
	By, Why string
	Since   time.Time   // on the service's clock where that is known
	marks   lease.Marks // what the marks were before
}

// Pause lets no occurrence of the job run until Resume, whoever delivers it. A delivery meanwhile has the outcome Paused, which is a
// success to a platform, so that nobody retries it; its occurrence is not consumed, and runs if it is delivered again after
// Resume. Deliveries cost no request more. Pausing a paused job is a success and changes nothing, r included.
//
// Pause takes the job's lock: it blocks until no run holds it, or ctx ends. r.By says who pauses and is not empty; r.By and
// r.Why have at most 120 bytes together. It makes two requests when nothing runs.
func (j *Job) Pause(ctx context.Context, r lease.Reason) error {
	switch {
	case r.By == "":
		return lease.Invalid("pause", j.name, "it is not said who pauses the job")
	case len(r.By)+len(r.Why) > maxReason:
		return lease.Invalid("pause", j.name, "who and why have more than %d bytes", maxReason)
	}
	l, err := j.c.Acquire(ctx, j.name)
	if err != nil {
		return err
	}
	g := l.Grant()
	if IsPaused(g.Marks) {
		return l.Release(ctx)
	}
	p := &Pause{By: r.By, Why: r.Why, Since: grantedAt(g), marks: lease.Marks{Started: g.Marks.Started, Finished: g.Marks.Finished}}
	runs, _ := decodeLedger(g.Value) // what is not a ledger is replaced by one
	runs = append(runs, Entry{Occurrence: p.Since.Truncate(time.Second), Outcome: Paused, Token: g.Token, Started: p.Since})
	return l.ReleaseWith(ctx, lease.Final{
		Value: runs.encodePaused(p), Marks: &lease.Marks{Started: pausedMark, Finished: pausedMark},
	})
}

// Resume ends the pause of the job. Occurrences that were skipped meanwhile do not run by themselves. A job that is not paused
// gives lease.ErrConflict and is left alone. It makes two requests, and blocks as Pause does.
func (j *Job) Resume(ctx context.Context) error {
	l, err := j.c.Acquire(ctx, j.name)
	if err != nil {
		return err
	}
	g := l.Grant()
	if !IsPaused(g.Marks) {
		return errors.Join(&lease.Error{
			Op: "resume", Store: j.c.Store().Limits().Store, Name: j.name, Class: lease.ErrConflict, Err: errors.New("the job is not paused"),
		}, l.Release(ctx))
	}
	p := decodePause(g.Value)
	if p == nil {
		return errors.Join(&lease.Error{
			Op: "resume", Store: j.c.Store().Limits().Store, Name: j.name, Class: lease.ErrMisconfigured,
			Err:  errors.New("the ledger does not say what was finished before the pause: something else has written the lock's value"),
			Hint: "Clear the first occurrence that is to run again, which ends the pause",
		}, l.Release(ctx))
	}
	runs, _ := decodeLedger(g.Value)
	now := grantedAt(g)
	runs = append(runs, Entry{Occurrence: now.Truncate(time.Second), Outcome: Resumed, Token: g.Token, Started: now})
	return l.ReleaseWith(ctx, lease.Final{Value: runs.encode(), Marks: &p.marks})
}

// pauseOf is the pause of a paused job, and its marks but for that.
func pauseOf(info lease.Info) (*Pause, lease.Marks) {
	p := decodePause(info.Value)
	if p == nil {
		p = &Pause{Since: info.Since}
	}
	m := p.marks
	m.Running = info.Marks.Running
	return p, m
}

// pauseField begins the pause in a ledger.
const pauseField = "pause:"

// encode is one word: the marks before, the time in ms, and who and why.
func (p *Pause) encode() string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf(" %s%d:%d:%d:%s:%s", pauseField, p.marks.Started, p.marks.Finished, p.Since.UnixMilli(),
		url.QueryEscape(p.By), url.QueryEscape(p.Why))
}

// decodePause finds the pause in a lock's value; nil if there is none that can be read.
func decodePause(value []byte) *Pause {
	for word := range bytes.FieldsSeq(value) {
		text, ok := strings.CutPrefix(string(word), pauseField)
		f := strings.Split(text, ":")
		if !ok || len(f) != 5 {
			continue
		}
		var n [3]int64
		for i := range n {
			v, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil || v < 0 || i < 2 && v >= pausedMark {
				return nil
			}
			n[i] = v
		}
		by, errBy := url.QueryUnescape(f[3])
		why, errWhy := url.QueryUnescape(f[4])
		if errBy != nil || errWhy != nil {
			return nil
		}
		return &Pause{By: by, Why: why, Since: time.UnixMilli(n[2]).UTC(), marks: lease.Marks{Started: n[0], Finished: n[1]}}
	}
	return nil
}
