//go:build linux

package main_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCL02_EverySignalOnce: what is sent to the wrapper arrives once in every process of the group, and the lock is given back
// when the group is gone, not before.
func TestCL02_EverySignalOnce(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, j := newWorld(t), newJournal(t)
			run := w.start("run", "L", "--", "sh", "-c", `trap : HUP INT QUIT TERM USR1 USR2; "$@" & wait; wait; wait; exit 5`, "sh",
				os.Args[0], workerArgument, j.file)
			j.find("begin", 1)
			run.signal(sig)
			j.find("signal "+itoa(int(sig)), 1)
			if sig != syscall.SIGTERM {
				time.Sleep(100 * time.Millisecond) // nothing may come of it
				require.Equal(t, 1, j.count("signal"))
				require.Equal(t, "held", w.status("L").State)
				run.signal(syscall.SIGTERM)
			}
			end := j.find("end", 1)
			require.Equal(t, 5, run.end(), run.errs)
			require.Equal(t, 1, j.count("signal "+itoa(int(sig))))
			w.releasedAfter("L", end.at)
		})
	}
}

// releasedAfter checks that the last request for a lock came after at.
func (w *world) releasedAfter(lock string, at time.Time) {
	w.t.Helper()
	require.Equal(w.t, "free", w.status(lock).State)
	for _, s := range w.gate.requests(lock) {
		if s.op == "UpdateItem" && strings.Contains(s.body, `":free"`) {
			require.True(w.t, s.at.After(at), "released %v before the group was gone", at.Sub(s.at))
			return
		}
	}
	require.Fail(w.t, "no release was sent")
}

// TestCL02_IgnoredTERM: KILL after the grace; then the release.
func TestCL02_IgnoredTERM(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.start("run", "L", "--grace", "1s", "--", "sh", "-c", `"$@" & wait`, "sh", os.Args[0], workerArgument, j.file, "ignore")
	pid := j.pid(1)
	run.signal(syscall.SIGTERM)
	told := j.find("signal 15", 1)
	require.Equal(t, 143, run.end(), "the shell's own end")
	require.GreaterOrEqual(t, time.Since(told.at), 900*time.Millisecond)
	require.False(t, alive(pid))
	require.Zero(t, j.count("end"))
	w.releasedAfter("L", told.at.Add(900*time.Millisecond))
}

// TestCL02_Setsid: a worker that leaves the group is asked, waited for and killed all the same.
func TestCL02_Setsid(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]string{"obeys": {"setsid"}, "ignores": {"setsid", "ignore"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, j := newWorld(t), newJournal(t)
			argv := append([]string{"run", "L", "--grace", "1s", "--", "sh", "-c", `("$@" &) ; exit 7`, "sh"}, j.worker(options...)...)
			run := w.start(argv...)
			pid := j.pid(1)
			time.Sleep(200 * time.Millisecond) // the shell is gone by now
			require.Equal(t, "held", w.status("L").State)
			run.signal(syscall.SIGTERM)
			require.Equal(t, 7, run.end(), run.errs)
			require.False(t, alive(pid))
			require.Equal(t, 1, j.count("signal 15"))
			w.releasedAfter("L", j.find("signal 15", 1).at)
		})
	}
}

// TestCL02_TwoWrappers compete for one lock, and are stopped: their workers never run at one time.
func TestCL02_TwoWrappers(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	argv := append([]string{"run", "L", "--wait", "1m", "--", "sh", "-c", `"$@" & wait; wait`, "sh"}, j.worker("for=1s")...)
	a, b := w.start(argv...), w.start(argv...)
	j.find("begin", 1)
	a.signal(syscall.SIGUSR1) // to the shell's end, or the end of the wait
	require.Contains(t, []int{0, 138}, a.end(), a.errs)
	require.Contains(t, []int{0}, b.end(), b.errs)
	running := 0
	for _, l := range j.lines() {
		switch {
		case strings.HasPrefix(l.text, "begin"):
			running++
		case l.text == "end":
			running--
		}
		require.LessOrEqual(t, running, 1, "%v", j.lines())
	}
	require.Positive(t, j.count("end"))
}

// TestCL02_ThreeTimesTERM: the second and the third do not shorten the grace.
func TestCL02_ThreeTimesTERM(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.start(append([]string{"run", "L", "--grace", "10s", "--"}, j.worker("ignore", "for=1s")...)...)
	j.find("begin", 1)
	for range 3 {
		run.signal(syscall.SIGTERM)
		time.Sleep(20 * time.Millisecond)
	}
	require.Zero(t, run.end(), run.errs)
	require.Equal(t, 1, j.count("end"))
	require.Contains(t, []int{1, 2, 3}, j.count("signal 15"), "a signal that is pending swallows another of its kind")
}

// TestCL02_SignalWhileWaiting ends the wait, and the command is never started.
func TestCL02_SignalWhileWaiting(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	holder := w.start(append([]string{"run", "L", "--"}, j.worker()...)...)
	j.find("begin", 1)
	for name, c := range map[string]struct {
		sig  syscall.Signal
		args []string
		code int
	}{
		"TERM":       {syscall.SIGTERM, []string{"--wait", "1m"}, 143},
		"INT":        {syscall.SIGINT, []string{"--if-held", "wait"}, 130},
		"HUP":        {syscall.SIGHUP, []string{"--if-held", "skip", "--wait", "1m"}, 129},
		"occurrence": {syscall.SIGQUIT, []string{"--if-held", "wait"}, 131},
	} {
		t.Run(name, func(t *testing.T) {
			seen := len(w.gate.requests("L"))
			run := w.start(append(append([]string{"run", "L"}, c.args...), append([]string{"--"}, j.worker()...)...)...)
			eventually(t, "it does not wait", func() bool { return len(w.gate.requests("L")) > seen+1 })
			run.signal(syscall.SIGWINCH)
			run.signal(c.sig)
			require.Equal(t, c.code, run.end(), run.errs)
			require.Contains(t, run.errs.String(), "was not started")
		})
	}
	holder.signal(syscall.SIGTERM)
	require.Zero(t, holder.end())
	require.Equal(t, 1, j.count("begin"))
}
