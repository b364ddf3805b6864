//go:build linux

package main_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGE02_BreakOfAGrantThatIsOver: the operator has seen one grant, another has come: nothing is changed, the present holder is shown.
func TestGE02_BreakOfAGrantThatIsOver(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	w.ok("run", "L", "--", "true")
	seen := w.token("L")
	run := w.start(append([]string{"run", "L", "--", "sh", "-c", `"$@"`, "sh"}, j.worker()...)...)
	j.find("begin", 1)
	now := w.status("L")
	r := w.cli("break", "L", "--token", seen, "--yes")
	require.Equal(t, 1, r.code)
	require.Empty(t, r.out)
	require.Contains(t, r.err, "it is held by "+now.Holder+" with token "+strconv.FormatUint(now.Token, 10)+" now, not with "+seen)
	require.Contains(t, r.err, "nothing was changed")
	require.Equal(t, "held", w.status("L").State)
	run.signal(15)
	run.end()
}

// TestGE02_BreakOfTheLivingHolder works only with its token and a confirmation; the holder's command is ended at its next
// renewal, the next token is higher, and who, when and why are kept.
func TestGE02_BreakOfTheLivingHolder(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	const ttl = 6 * time.Second
	run := w.start(append([]string{"run", "L", "--ttl", ttl.String(), "--"}, j.worker("ignore")...)...)
	pid := j.pid(1)

	held := w.cli("run", "L", "--", "true")
	require.Equal(t, 191, held.code)
	s := w.status("L")
	require.Contains(t, held.err, "is held by "+s.Holder)
	require.Contains(t, held.err, "since "+s.Since)
	command := "cloudlease break L --token " + strconv.FormatUint(s.Token, 10) + " --yes"
	require.Contains(t, held.err, command)

	argv := strings.Fields(strings.TrimPrefix(command, "cloudlease "))
	unconfirmed := w.cli(argv[:len(argv)-1]...)
	require.Equal(t, 194, unconfirmed.code)
	require.Contains(t, unconfirmed.err, command)
	require.Contains(t, w.cli("break", "L", "--yes").err, "--token is missing")
	require.True(t, alive(pid))

	w.ok(append(argv, "--why", "on call")...)
	broken := time.Now()
	require.Equal(t, 193, run.end(), run.errs)
	require.False(t, alive(pid))
	require.Less(t, time.Since(broken), ttl, "the holder learns it at its next renewal")
	after := w.status("L")
	require.Equal(t, s.Token, after.Broken.Token)
	require.Equal(t, "on call", after.Broken.Why)
	require.Contains(t, after.Broken.By, "operator@")
	require.WithinDuration(t, broken, parse(t, after.Broken.At), 10*time.Second)
	require.Contains(t, w.ok("status", "L"), ": on call")
	w.ok("run", "L", "--", "true")
	require.Greater(t, w.status("L").Token, s.Token)
}

// TestGE02_BreakWithoutAHolder: a free lock, an unknown name, and two operators at once get different answers and one code.
func TestGE02_BreakWithoutAHolder(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	w.ok("run", "L", "--", "true")
	free := w.cli("break", "L", "--token", w.token("L"), "--yes")
	require.Equal(t, 1, free.code)
	require.Contains(t, free.err, "it is free; its last token was "+w.token("L"))
	unknown := w.cli("break", "never", "--token", "7", "--yes")
	require.Equal(t, 1, unknown.code)
	require.Contains(t, unknown.err, "no lock of this name was ever taken")

	run := w.start(append([]string{"run", "L", "--ttl", "4s", "--"}, j.worker()...)...)
	j.find("begin", 1)
	token := w.token("L")
	var both [2]result
	var wg sync.WaitGroup
	for i := range both {
		wg.Go(func() { both[i] = w.cli("break", "L", "--token", token, "--yes") })
	}
	wg.Wait()
	require.ElementsMatch(t, []int{0, 1}, []int{both[0].code, both[1].code}, "%v", both)
	require.Contains(t, both[0].err+both[1].err, "it is free")
	require.Equal(t, 193, run.end())
}

// TestFloorOfAHeldLock leaves it alone.
func TestFloorOfAHeldLock(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.start(append([]string{"run", "L", "--"}, j.worker()...)...)
	j.find("begin", 1)
	r := w.cli("floor", "L", "9000000000000000")
	require.Equal(t, 191, r.code)
	require.Contains(t, r.err, "nothing was changed")
	require.Equal(t, 194, w.cli("floor", "L", "9007199254740991").code)
	require.Equal(t, 194, w.cli("floor", "L", "-1").code)
	run.signal(15)
	require.Zero(t, run.end())
	w.ok("floor", "L", "9000000000000000")
	w.ok("floor", "L", "8000000000000000")
	w.ok("run", "L", "--", "true")
	require.Equal(t, "9000000000000001", w.token("L"))
}

// TestSF03_WhatRunsIsShown: while an occurrence runs longer than its period, the next ones are skipped and not done, and status and
// history show which one runs, since when, and until when it has been renewed.
func TestSF03_WhatRunsIsShown(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	const first, second = "2026-03-02T06:00:00Z", "2026-03-02T06:01:00Z"
	began := time.Now()
	run := w.start(append([]string{"run", "J", "--ttl", "8s", "--occurrence", first, "--"}, j.worker()...)...)
	j.find("begin", 1)
	s := w.status("J")
	require.Equal(t, first, s.Job.Running)
	require.WithinDuration(t, began, parse(t, s.Since), 5*time.Second)
	h := w.history("J")
	require.Equal(t, first, h.Running.Occurrence)
	require.Equal(t, s.Since, h.Running.Since)

	r := w.cli("run", "J", "--occurrence", second, "--", "echo", "never")
	require.Equal(t, 0, r.code)
	require.Empty(t, r.out)
	require.Contains(t, r.err, "skipped, another occurrence runs (token "+strconv.FormatUint(s.Token, 10))
	own := w.cli("run", "J", "--occurrence", first, "--", "echo", "never")
	require.Equal(t, 191, own.code, "this very occurrence runs elsewhere: to be delivered again")
	require.Contains(t, own.err, "this occurrence runs elsewhere")

	eventually(t, "the end does not move on", func() bool { return parse(t, w.status("J").Expires).After(parse(t, s.Expires)) })
	require.Contains(t, w.ok("status", "J"), "running  "+first)
	run.signal(15)
	require.Zero(t, run.end(), run.errs)
	require.Empty(t, w.status("J").Job.Running)
	require.Equal(t, first, w.status("J").Job.Finished)
	require.Zero(t, w.cli("run", "J", "--occurrence", second, "--", "true").code, "skipped is not done")
	require.Equal(t, second, w.status("J").Job.Finished)
}

// TestInDoubt: an occurrence whose runner was killed is not started again under at-most-once; history shows it, clear lets it run.
func TestInDoubt(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	const at = "2026-03-02T06:00:00Z"
	args := []string{"run", "J", "--ttl", "2s", "--occurrence", at, "--policy", "at-most-once", "--"}
	run := w.start(append(args, j.worker()...)...)
	j.find("begin", 1)
	run.signal(9)
	run.end()
	token := w.status("J").Token
	eventually(t, "it does not end", func() bool { return w.status("J").State == "dead" })
	r := w.cli(append(args, "echo", "never")...)
	require.Equal(t, 195, r.code, r.err)
	require.Empty(t, r.out)
	require.Contains(t, r.err, "cloudlease clear J "+at)
	h := w.history("J")
	require.Equal(t, "in-doubt", h.Runs[0].Outcome)
	require.Equal(t, at, h.Runs[0].Occurrence)
	w.ok("clear", "J", at, "--policy", "at-most-once")
	require.Equal(t, "once\n", w.ok(append(args, "echo", "once")...))
	require.Greater(t, w.status("J").Token, token)

	failing := append([]string{"run", "J", "--occurrence", "2026-03-02T07:00:00Z", "--policy", "at-most-once", "--exit-code", "doubt=66", "--"}, "false")
	require.Equal(t, 1, w.cli(failing...).code)
	again := w.cli(failing...)
	require.Equal(t, 66, again.code)
	require.Contains(t, again.err, "has failed and is not run again")
}

// TestPauseWaitsForTheRun: a run that is under way is not disturbed.
func TestPauseWaitsForTheRun(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.start(append([]string{"run", "J", "--occurrence", "2026-03-02T06:00:00Z", "--"}, j.worker()...)...)
	j.find("begin", 1)
	pause := w.start("pause", "J")
	seen := len(w.gate.requests("J"))
	eventually(t, "it does not wait", func() bool { return len(w.gate.requests("J")) > seen+2 })
	require.Nil(t, w.history("J").Paused)
	run.signal(15)
	require.Zero(t, run.end(), run.errs)
	require.Zero(t, pause.end(), pause.errs)
	require.NotNil(t, w.history("J").Paused)
	require.Contains(t, w.ok("history", "J"), "paused")
	given := w.start("pause", "K")
	require.Zero(t, given.end())
}
