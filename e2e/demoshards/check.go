//go:build unix

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func text(n uint64) string { return strconv.FormatUint(n, 10) }

// check tells what was seen of each shard, and what of it was not promised: records that were left out or out of order, tokens that
// did not grow, and repeats other than of the batch that the killed process had begun.
func check(s story, killed time.Time, out io.Writer) error {
	var faults []error
	slices.SortStableFunc(s.spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), a.from.Compare(b.from))
	})
	_, _ = fmt.Fprintf(out, "\n%-10s %-8s %-8s %-8s %s\n", "shard", "records", "repeats", "owners", "in turn")
	for i := range shards {
		id := fmt.Sprintf("shard-%03d", i+1)
		done, repeats, err := checkWrites(id, s.writes, killed)
		faults = append(faults, err)
		var turns strings.Builder
		owners := 0
		for _, sp := range s.spans {
			if sp.shard == id {
				owners++
				turns.WriteString(sp.who)
			}
		}
		_, _ = fmt.Fprintf(out, "%-10s %-8d %-8d %-8d %s\n", id, done, repeats, owners, turns.String())
	}
	for i := 1; i < len(s.spans); i++ {
		a, b := s.spans[i-1], s.spans[i]
		if a.shard == b.shard && (b.token <= a.token || b.from.Before(a.until)) {
			faults = append(faults, fmt.Errorf("%s: the token or the time of %s does not follow that of %s", a.shard, b.who, a.who))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "Every record was processed, in the order of its shard. Repeats: what the killed process had not stored yet.\n")
	return nil
}

// checkWrites checks the records of one shard, as the store took them.
func checkWrites(id string, writes []write, killed time.Time) (done, repeats int, err error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(id+": "+format, args...)) }
	first := map[int]uint64{} // record -> the token it was first processed with
	last, token := 0, uint64(0)
	for _, w := range writes {
		if w.shard != id {
			continue
		}
		if w.token < token {
			fault("record %d came with token %d after %d", w.number, w.token, token)
		}
		before, repeated := first[w.number]
		switch {
		case repeated && (killed.IsZero() || w.at.Before(killed) || w.token == before):
			fault("record %d was processed again, and nobody had died", w.number)
		case repeated:
			repeats++
		case w.number != done+1:
			fault("record %d follows %d", w.number, done)
		}
		if w.number != last+1 && w.token == token {
			fault("record %d follows %d of the same owner", w.number, last)
		}
		if !repeated {
			first[w.number], done = w.token, w.number
		}
		last, token = w.number, w.token
	}
	if done != records {
		fault("it ends with record %d", done)
	}
	if repeats > batch {
		fault("%d records were processed again, more than a batch", repeats)
	}
	return done, repeats, errors.Join(faults...)
}
