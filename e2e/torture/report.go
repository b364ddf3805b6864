//go:build unix

package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/check"
	"github.com/cloudlease/cloudlease/e2e/torture/history"
)

// print tells the figures.
func (c *campaign) print(out io.Writer, rep check.Report) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, "  "+format+"\n", args...) }
	writes := 0
	for _, n := range rep.Writes {
		writes += n
	}
	ops := len(rep.Holds) + writes + rep.Reads
	say("%-14s %d in %.0f s, %.1f a second: %d grants, %d guarded writes (%d done, %d refused as stale, %d unknown, %d not done), %d reads",
		"operations", ops, c.lasted.Seconds(), float64(ops)/c.lasted.Seconds(), len(rep.Holds), writes, rep.Writes[history.Done],
		rep.Writes[history.Refused], rep.Writes[history.Unknown], rep.Writes[history.Nothing], rep.Reads)
	inconsistent, lives := 0, 0
	for _, h := range c.holders {
		inconsistent += h.proxy.Stats().Inconsistent
		lives += h.lives
	}
	say("%-14s %s, looked for in all that was written", "secrets", c.secrets.String())
	say("%-14s %d, of which %d reads would have taken a stale answer; %d processes", "requests", c.served, inconsistent, lives)
	var faults []string
	total := 0
	for _, kind := range c.kinds() {
		faults = append(faults, fmt.Sprintf("%s %d", kind, c.counts[kind]))
		total += c.counts[kind]
	}
	if c.Scene == sceneRestore {
		say("%-14s 2 by the documented procedure and while holders were alive, after which %d grants overlapped with a former holder's trust", "restores", rep.Excused)
	} else {
		say("%-14s %d: %s", "faults", total, strings.Join(faults, ", "))
	}
	if c.Scene == sceneBeyond {
		say("%-14s %d", "violations", len(rep.Violations))
		return
	}
	say("%-14s %s", "take-overs", takeOvers(rep.TakeOvers))
	say("%-14s %.1f s without a holder while somebody able was asking, of the %.0f s that a dead holder may cost", "longest wait",
		rep.LongestGap.Seconds(), c.service.Bound().Seconds())
	say("%-14s %d", "violations", len(rep.Violations))
}

// takeOvers tells the times from a lost holder's last good renewal to the next grant.
func takeOvers(all []check.TakeOver) string {
	if len(all) == 0 {
		return "none"
	}
	var took, able []time.Duration
	for _, t := range all {
		took, able = append(took, t.Took), append(able, t.Able)
	}
	slices.Sort(took)
	slices.Sort(able)
	return fmt.Sprintf("%d: min %.1f s, median %.1f s, max %.1f s after the last good renewal; without the time in which nobody able was asking: max %.1f s",
		len(took), took[0].Seconds(), took[len(took)/2].Seconds(), took[len(took)-1].Seconds(), able[len(able)-1].Seconds())
}

// violation is the line that tells of one.
func violation(v check.Violation) string {
	when := "in all"
	if v.At != 0 {
		when = fmt.Sprintf("at %.3f s", v.At.Seconds())
	}
	return fmt.Sprintf("  VIOLATION %s, lock %q: %s", when, v.Lock, v.What)
}

// shown is how many violations are printed.
const shown = 20

// keep tells what was wrong, where the history is, and how to repeat it.
func (c *campaign) keep(out io.Writer, rep check.Report, events []history.Event) error {
	for _, v := range rep.Violations[:min(shown, len(rep.Violations))] {
		_, _ = fmt.Fprintln(out, violation(v))
	}
	picture := filepath.Join(c.Dir, "history.svg")
	if err := draw(picture, rep, events); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "  history: %s, one file a worker, its logs, requests.jsonl and campaign.jsonl\n  picture: %s\n  repeat:  make torture SCENE=%s STORE=%s SEED=%d FOR=%v\n",
		c.Dir, picture, c.Scene, c.Store, c.Seed, c.For)
	return err
}
