package singleton

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/internal/excerpt"
	"github.com/cloudlease/cloudlease/lease"
)

// Entry is one run in a job's history.
type Entry struct {
	Occurrence time.Time
	// Outcome is Ran, Failed, Refused or Lost; InDoubt for a run that was started and has no recorded end; Cleared, Paused or
	// Resumed for what an operator did, the latter two with the second at which it was done as their occurrence.
	Outcome Outcome
	Token   lease.Token
	Started time.Time     // on the service's clock where that is known
	Took    time.Duration // how long the body ran, to the millisecond; 0 in doubt
}

// ledger is the newest runs of a job, oldest first, as kept in the value of its lock.
type ledger []Entry

const (
	ledgerVersion = "s1"
	ledgerRuns    = 8 // how many runs are kept; 8 of the longest usual entries have 490 bytes
)

// encode writes the newest runs: a version, then occurrence:outcome:token:start:took for each, in unix seconds and
// milliseconds. The oldest are left out until the rest fits a lock's value.
func (l ledger) encode() []byte { return l.encodePaused(nil) }

// encodePaused is encode for a job that is paused by p.
func (l ledger) encodePaused(p *Pause) []byte {
	l = l[max(0, len(l)-ledgerRuns):]
	for ; ; l = l[1:] {
		text := []byte(ledgerVersion + p.encode())
		for _, e := range l {
			text = fmt.Appendf(text, " %d:%s:%d:%d:%d", e.Occurrence.Unix(), e.Outcome, e.Token, e.Started.UnixMilli(), e.Took.Milliseconds())
		}
		if len(text) <= lease.MaxValue {
			return text
		}
	}
}

// decodeLedger reads what encode wrote. Nothing is an empty ledger; anything else is an error and an empty ledger.
func decodeLedger(value []byte) (ledger, error) {
	if len(value) == 0 {
		return nil, nil
	}
	version, rest, _ := strings.Cut(string(value), " ")
	if version != ledgerVersion {
		return nil, fmt.Errorf("the lock's value is not a ledger of runs: %.40q", value)
	}
	var l ledger
	for text := range strings.FieldsSeq(rest) {
		if strings.HasPrefix(text, pauseField) {
			continue
		}
		e, err := decodeEntry(text)
		if err != nil {
			return nil, fmt.Errorf("the ledger of runs is damaged at %.60q: %w", text, excerpt.Error(err))
		}
		l = append(l, e)
	}
	return l, nil
}

func decodeEntry(text string) (Entry, error) {
	f := strings.Split(text, ":")
	if len(f) != 5 {
		return Entry{}, fmt.Errorf("%d fields, not 5", len(f))
	}
	outcome := Outcome(f[1])
	if !slices.Contains([]Outcome{Ran, Failed, Refused, Lost, Cleared, Running, Paused, Resumed}, outcome) {
		return Entry{}, fmt.Errorf("unknown outcome %.20q", outcome)
	}
	var n [5]int64
	for _, i := range []int{0, 2, 3, 4} {
		v, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return Entry{}, err
		}
		n[i] = v
	}
	const maxTook = int64(1<<63-1) / int64(time.Millisecond)
	if n[0] <= 0 || n[2] <= 0 || n[4] < 0 || n[4] > maxTook {
		return Entry{}, fmt.Errorf("a number is out of range")
	}
	return Entry{
		Occurrence: instant(n[0]), Outcome: outcome, Token: lease.Token(n[2]),
		Started: time.UnixMilli(n[3]).UTC(), Took: time.Duration(n[4]) * time.Millisecond,
	}, nil
}

// standing are the runs that no later Clear has made void.
func (l ledger) standing() ledger {
	var runs ledger
	for _, e := range l {
		if e.Outcome == Paused || e.Outcome == Resumed {
			continue
		}
		if e.Outcome != Cleared {
			runs = append(runs, e)
			continue
		}
		runs = slices.DeleteFunc(runs, func(r Entry) bool { return !r.Occurrence.Before(e.Occurrence) })
	}
	return runs
}

// recorded is the last standing run of occ, if the last grant of the lock left its record. If it did not, the run that
// was granted last has no known end, and may have been one of occ.
func (l ledger) recorded(occ int64, last lease.Token) (Entry, bool) {
	if len(l) == 0 || l[len(l)-1].Token != last {
		return Entry{}, false
	}
	for _, e := range slices.Backward(l.standing()) {
		if e.Occurrence.Unix() == occ {
			return e, true
		}
	}
	return Entry{}, false
}

// marksBefore are have without occ and everything newer: what the standing runs say was the newest before it.
func (l ledger) marksBefore(occ int64, have lease.Marks) lease.Marks {
	m := lease.Marks{Started: have.Started, Finished: have.Finished}
	if m.Finished >= occ {
		m.Finished = 0
	}
	if m.Started >= occ {
		m.Started = m.Finished
	}
	for _, e := range l.standing() {
		at := e.Occurrence.Unix()
		if at >= occ {
			continue
		}
		if e.Outcome == Ran {
			m.Finished = max(m.Finished, at)
		}
		m.Started = max(m.Started, at)
	}
	return m
}
