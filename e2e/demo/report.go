//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// Counts are the last line.
type Counts struct {
	Ran          int // runs that ended well: the store has marked them as finished
	Skipped      int // deliveries that got no lease, because the work was done already
	TakenOver    int // leases whose holder before had given nothing back
	StaleRefused int // results that the store did not take, because their token was older
}

func (c Counts) String() string {
	return fmt.Sprintf("ran=%d skipped=%d taken_over=%d stale_refused=%d", c.Ran, c.Skipped, c.TakenOver, c.StaleRefused)
}

// planned is what the three scenes come to.
var planned = Counts{Ran: 3, Skipped: 5, TakenOver: 2, StaleRefused: 1}

// facts are what the store says.
type facts struct {
	holds   []Hold
	results []Write // the writes that reached the results table
	settled []Settled
	history singleton.History
}

// report shows what the store says, and checks it.
func (w *world) report(ctx context.Context) (Counts, error) {
	f, err := w.ask(ctx)
	if err != nil {
		return Counts{}, fmt.Errorf("read back from the store: %w", err)
	}
	w.say("\nWhat the store has seen (recorded at its door, from %d writes and %d other requests):\n\n%s",
		len(w.recorder.Writes()), w.recorder.Others(), w.leaseTable(f))
	w.say("What the store has now (read back from its tables):\n\n%s", settledTable(f))
	counts := w.count(f)
	w.say("ran=%d             runs that ended well; the lock %q marks that of %s as the newest", counts.Ran, jobName,
		f.history.Finished.Format(time.DateOnly))
	w.say("skipped=%d         of %d deliveries found the work done and did nothing", counts.Skipped, len(w.deliveries))
	w.say("taken_over=%d      leases of a killed or stopped process were taken over", counts.TakenOver)
	w.say("stale_refused=%d   writes came too late and were refused", counts.StaleRefused)
	return counts, w.check(f, counts)
}

// ask reads everything back.
func (w *world) ask(ctx context.Context) (facts, error) {
	var f facts
	store, err := dynamolock.New(w.store, locksTable, nil)
	if err != nil {
		return f, err
	}
	client, err := lease.New(store, nil)
	if err != nil {
		return f, err
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }() // it holds no lease
	job, err := singleton.New(client, jobName, nil)
	if err != nil {
		return f, err
	}
	if f.history, err = job.History(ctx); err != nil {
		return f, err
	}
	out, err := w.store.Scan(ctx, &dynamodb.ScanInput{TableName: aws.String(resultsTable), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return f, err
	}
	for _, it := range out.Items {
		f.settled = append(f.settled, settledOf(it))
	}
	slices.SortFunc(f.settled, func(a, b Settled) int { return strings.Compare(a.Key, b.Key) })
	writes := w.recorder.Writes()
	f.holds = Holds(writes, locksTable)
	for _, wr := range writes {
		if wr.Table == resultsTable {
			f.results = append(f.results, wr)
		}
	}
	return f, nil
}

// count counts.
func (w *world) count(f facts) Counts {
	c := Counts{Skipped: len(w.deliveries) - len(f.holds)}
	for _, h := range f.holds {
		if h.Finished {
			c.Ran++
		}
		if h.TookOver {
			c.TakenOver++
		}
	}
	for _, wr := range f.results {
		if wr.Verdict == Refusal {
			c.StaleRefused++
		}
	}
	return c
}

// leaseTable is one line for each lease.
func (w *world) leaseTable(f facts) string {
	var rows [][]string
	for _, h := range f.holds {
		owner, end := w.owner(h.Holder), "given back"
		if !h.Released {
			end = "ran out"
		}
		for _, a := range w.acts {
			if !h.Released && a.to == owner && a.kind == Killed {
				end = "ran out: process killed"
			}
			if !h.Released && a.to == owner && a.kind == Stopped {
				end = "ran out: process stopped"
			}
		}
		rows = append(rows, []string{
			h.Day, owner.name, h.Token, w.clock(h.From) + " to " + w.clock(h.Until), end, writesOf(f, h.Token),
		})
	}
	return Table([]string{"run", "process", "token", "lease held", "its end", "its result"}, rows...)
}

// clock is an instant in seconds since the first delivery.
func (w *world) clock(at time.Time) string { return fmt.Sprintf("%4.1f s", at.Sub(w.began).Seconds()) }

// writesOf says what became of the result of the run with a token.
func writesOf(f facts, token string) string {
	said := "none"
	for _, wr := range f.results {
		switch {
		case reportOf(wr.Value).Token.String() != token:
		case wr.Verdict == Took:
			said = "stored"
		case wr.Verdict == Refusal:
			said = "REFUSED: too old"
		default:
			said = "failed"
		}
	}
	return said
}

// settledTable is one line for each result.
func settledTable(f facts) string {
	var rows [][]string
	for _, s := range f.settled {
		rows = append(rows, []string{
			s.Key, fmt.Sprintf("%d.%02d EUR", s.Report.TotalCents/100, s.Report.TotalCents%100), fmt.Sprint(s.Report.Count),
			s.Report.Token.String(), s.Fence, endOf(f.history, s.Report.Token.String()),
		})
	}
	return Table([]string{"result", "sum", "payments", "written with", "highest token seen", "its run"}, rows...)
}

// endOf is how the lock's history says that the run with a token ended.
func endOf(h singleton.History, token string) string {
	for _, run := range h.Runs {
		if fmt.Sprint(run.Token) == token {
			return string(run.Outcome)
		}
	}
	return "unrecorded"
}

// check compares what the store says with what was planned.
func (w *world) check(f facts, counts Counts) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(f.settled) != len(occurrences) {
		fault("the results table has %d results, not %d", len(f.settled), len(occurrences))
	}
	stale := 0
	for _, s := range f.settled {
		if sum := sumOf(s.Report.day()); s.Report.TotalCents != sum || s.Report.Count != paymentsPerDay {
			fault("%s is %d cents of %d payments, not %d of %d", s.Key, s.Report.TotalCents, s.Report.Count, sum, paymentsPerDay)
		}
		if s.Report.Token.String() != s.Fence {
			stale++
			w.say("\n%s holds what the run with token %s wrote, although the newer run\nwith token %s had written before: its result is gone.",
				s.Key, s.Report.Token, s.Fence)
		}
	}
	for _, h := range f.holds {
		if n := storedWith(f, h.Token); h.Finished && n != 1 {
			fault("the run with token %s has stored its result %d times", h.Token, n)
		}
	}
	if ran := finishedRuns(f.history); ran != planned.Ran {
		fault("the lock's history has %d runs that ended well, not %d", ran, planned.Ran)
	}
	want, staleWanted := planned, 0
	if !w.fence {
		want.StaleRefused, staleWanted = 0, 1
	}
	if counts != want {
		fault("the store counts %v, not %v", counts, want)
	}
	if stale != staleWanted {
		fault("%d results were overwritten by an older run, not %d", stale, staleWanted)
	}
	if len(faults) == 0 && !w.fence {
		return errNoFence
	}
	return errors.Join(faults...)
}

// sumOf is what the run of a day has to come to.
func sumOf(day string) int {
	sum := 0
	if day == "" {
		return sum
	}
	for i := range paymentsPerDay {
		sum += centsOf(day, i)
	}
	return sum
}

func storedWith(f facts, token string) int {
	n := 0
	for _, wr := range f.results {
		if wr.Verdict == Took && reportOf(wr.Value).Token.String() == token {
			n++
		}
	}
	return n
}

func finishedRuns(h singleton.History) int {
	n := 0
	for _, run := range h.Runs {
		if run.Outcome == singleton.Ran {
			n++
		}
	}
	return n
}
