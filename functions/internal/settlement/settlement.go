// Package settlement is the example job of the functions: it adds up the payments of one UTC day and writes the sum to
// storage that refuses stale writes.
//
// The day is the one before the scheduled instant's: a schedule of five past midnight settles the day that has just
// ended. A run that was paused, or cut off from the lock service, sends its write all the same when it wakes; if another
// run has written the day since, the storage refuses it with lease.ErrStale.
package settlement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// Payment is one payment.
type Payment struct {
	ID       string
	Cents    int64
	Currency string
}

// Payments are kept by UTC day.
type Payments interface {
	// Day yields the payments of a day, given as 2006-01-02. An error ends it; a part is never passed off as the whole.
	Day(ctx context.Context, day string) iter.Seq2[Payment, error]
}

// Report is what a run has settled.
type Report struct {
	Day        string      `json:"day"`
	Count      int         `json:"count"`
	TotalCents int64       `json:"total_cents"`
	Currency   string      `json:"currency"`
	Occurrence string      `json:"occurrence"`
	Token      lease.Token `json:"token"` // of the run, 0 if it ran unguarded
}

// Options are a settlement's options.
type Options struct {
	// Pace is a pause after every payment and before the write, so that a demonstration can come in between. Default none.
	Pace time.Duration
	// Logger gets the lines "settlement reading" and "settlement writing". Default: JSON to stderr.
	Logger *slog.Logger
}

// Settlement is the job.
type Settlement struct {
	payments Payments
	results  fence.Guard
	opt      Options
}

// New makes a settlement that writes each day's report to results, under Key.
func New(payments Payments, results fence.Guard, o *Options) (*Settlement, error) {
	s := &Settlement{payments: payments, results: results}
	if o != nil {
		s.opt = *o
	}
	if s.opt.Logger == nil {
		s.opt.Logger = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	switch {
	case payments == nil || results == nil:
		return nil, lease.Invalid("configure", "settlement", "it needs payments and a place for results")
	case s.opt.Pace < 0:
		return nil, lease.Invalid("configure", "settlement", "pace %v is negative", s.opt.Pace)
	}
	return s, nil
}

// Key is where the report of a day is kept.
func Key(day string) string { return "settlement/" + day }

// DayOf is the day that an occurrence settles: the UTC day before it.
func DayOf(occurrence time.Time) string {
	return occurrence.UTC().AddDate(0, 0, -1).Format(time.DateOnly)
}

// Handle settles the day of the occurrence that ctx carries, in the name of its lease: a body for lambdalease.
func (s *Settlement) Handle(ctx context.Context) (Report, error) {
	at, scheduled := singleton.OccurrenceFromContext(ctx)
	l, held := lease.FromContext(ctx)
	if !scheduled || !held {
		return Report{}, lease.Invalid("settle", "settlement", "the context carries no occurrence or no lease; run it as a singleton")
	}
	r, err := s.add(ctx, DayOf(at))
	if err != nil {
		return Report{}, fmt.Errorf("add up the payments of %s: %w", DayOf(at), err)
	}
	r.Occurrence, r.Token = at.Format(time.RFC3339), l.Token()
	if err := s.write(ctx, l, r); err != nil {
		return Report{}, fmt.Errorf("write the settlement of %s: %w", r.Day, err)
	}
	return r, nil
}

// markEvery is how often reading is logged where there is no pace.
const markEvery = 1000

func (s *Settlement) add(ctx context.Context, day string) (Report, error) {
	r := Report{Day: day}
	for p, err := range s.payments.Day(ctx, day) {
		if err == nil {
			err = r.take(p)
		}
		if err != nil {
			return r, err
		}
		if s.opt.Pace > 0 || r.Count%markEvery == 1 {
			s.opt.Logger.LogAttrs(ctx, slog.LevelInfo, "settlement reading", slog.String("day", day), slog.Int("n", r.Count))
		}
		if err := pause(ctx, s.opt.Pace); err != nil {
			return r, err
		}
	}
	return r, nil
}

// take adds a payment. Sums of different currencies mean nothing, and neither do those that overflow.
func (r *Report) take(p Payment) error {
	switch {
	case p.Currency == "":
		return fmt.Errorf("payment %q has no currency", p.ID)
	case r.Currency != "" && p.Currency != r.Currency:
		return fmt.Errorf("payment %q is in %s and those before it in %s; settle each currency by itself", p.ID, p.Currency, r.Currency)
	case p.Cents < 0:
		return fmt.Errorf("payment %q has the negative amount %d; refunds are no payments", p.ID, p.Cents)
	case r.TotalCents > math.MaxInt64-p.Cents:
		return fmt.Errorf("the sum with payment %q is too large for 64 bits", p.ID)
	}
	r.Count, r.TotalCents, r.Currency = r.Count+1, r.TotalCents+p.Cents, p.Currency
	return nil
}

const (
	writeTimeout = 5 * time.Second
	writeTries   = 3
)

// write stores the report. It does not hang on the lease's context, and does not ask the lease either: between any such
// check and the arrival of the write the lease can end, so that only the storage can decide, in the step that writes.
// Once the sum is there it is sent, and a stale one is refused.
func (s *Settlement) write(ctx context.Context, l *lease.Lease, r Report) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	s.opt.Logger.LogAttrs(ctx, slog.LevelInfo, "settlement writing", slog.String("day", r.Day), slog.Int("n", r.Count),
		slog.Uint64("token", uint64(l.Token())))
	if err := pause(ctx, s.opt.Pace); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for try := 1; ; try++ {
		err := fence.Put(ctx, s.results, l, Key(r.Day), value)
		if !errors.Is(err, lease.ErrInDoubt) || try == writeTries {
			return err
		}
		if err := pause(ctx, time.Duration(try)*100*time.Millisecond); err != nil { // the same token passes again
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
