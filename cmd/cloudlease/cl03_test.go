//go:build linux

package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func itoa(n int) string { return strconv.Itoa(n) }

// shortly is when a process has to be gone that the kernel or the supervisor kills at once.
const shortly = time.Second

// gone waits for the end of a process, from since on.
func gone(t *testing.T, pid int, since time.Time) {
	t.Helper()
	eventually(t, "process "+itoa(pid)+" lives on", func() bool { return !alive(pid) })
	if late := time.Since(since); late > shortly {
		t.Logf("process %d was found gone after %v", pid, late)
	}
}

// TestCL03_WrapperKilled: the command, what it has started, and what has left its group go with the wrapper, and the next
// holder's command does not start before the lease has ended.
func TestCL03_WrapperKilled(t *testing.T) {
	t.Parallel()
	for name, shell := range map[string]string{
		"a direct child":     `exec "$@"`,
		"b grandchild":       `"$@" & wait`,
		"b left alone":       `("$@" &); exec sleep 60`,
		"b ignores its end":  `trap "" TERM HUP INT; "$@" ignore & wait`,
		"b in its own group": `"$@" setsid & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, j := newWorld(t), newJournal(t)
			const ttl = 4 * time.Second
			before := time.Now()
			run := w.start(append([]string{"run", "L", "--ttl", ttl.String(), "--", "sh", "-c", shell, "sh"}, j.worker()...)...)
			pid := j.pid(1)
			next := w.start(append([]string{"run", "L", "--wait", "1m", "--ttl", ttl.String(), "--"}, j.worker("for=1ms")...)...)
			killed := time.Now()
			run.signal(syscall.SIGKILL)
			gone(t, pid, killed)
			require.Less(t, time.Since(killed), ttl, "it was not ended by the wrapper's end")
			require.Zero(t, next.end(), next.errs)
			require.Greater(t, j.find("begin", 2).at, before.Add(ttl))
			require.Zero(t, j.count("signal"))
		})
	}
}

// TestCL03_KilledRightAfterTheStart: 100 times, at some instant of its first 60 ms. Either the command never began, or it ends.
func TestCL03_KilledRightAfterTheStart(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	for i := range 100 {
		run := w.start(append([]string{"run", "L" + itoa(i), "--ttl", "1m", "--"}, j.worker()...)...)
		time.Sleep(rand.N(60 * time.Millisecond))
		run.signal(syscall.SIGKILL)
		run.end()
	}
	for n := range j.count("begin") {
		gone(t, j.pid(n+1), time.Now())
	}
	t.Logf("%d of 100 had begun", j.count("begin"))
}

// TestCL03_SupervisorKilled: the helper alone is killed. The command goes with it, and the wrapper gives the lock back after all
// is gone.
func TestCL03_SupervisorKilled(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.start(append([]string{"run", "L", "--", "sh", "-c", `"$@" & "$@" setsid & wait`, "sh"}, j.worker()...)...)
	first, second := j.pid(1), j.pid(2)
	helper := parent(t, parent(t, first))
	require.Equal(t, run.Process.Pid, parent(t, helper))
	require.NoError(t, syscall.Kill(helper, syscall.SIGKILL))
	require.Equal(t, 137, run.end(), run.errs)
	require.False(t, alive(first))
	require.False(t, alive(second))
	require.Equal(t, "free", w.status("L").State)
}

// TestCL03_BothKilled: wrapper and helper at once. The kernel kills the command itself.
func TestCL03_BothKilled(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.command(t.Context(), append([]string{"run", "L", "--"}, j.worker()...)...)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, run.Start())
	pid := j.pid(1)
	helper := parent(t, pid)
	require.NoError(t, syscall.Kill(run.Process.Pid, syscall.SIGSTOP)) // so that neither sees the other's end
	require.NoError(t, syscall.Kill(helper, syscall.SIGKILL))
	require.NoError(t, syscall.Kill(run.Process.Pid, syscall.SIGKILL))
	require.Equal(t, 137, codeOf(t, run.Wait()))
	gone(t, pid, time.Now())
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	require.NoError(t, err)
	var id, parent int
	var name, state string
	_, err = fmt.Sscan(string(stat), &id, &name, &state, &parent)
	require.NoError(t, err)
	return parent
}

// TestCL03_WrapperStopped: the wrapper stands still past the lease's end. Its command is ended in time by the helper, before the
// next holder's begins, and the wrapper finds the loss when it goes on.
func TestCL03_WrapperStopped(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.start(append([]string{"run", "L", "--ttl", "4s", "--"}, j.worker("ignore")...)...)
	pid := j.pid(1)
	run.signal(syscall.SIGSTOP)
	next := w.start(append([]string{"run", "L", "--wait", "1m", "--ttl", "4s", "--"}, j.worker("for=1ms")...)...)
	j.find("begin", 2)
	require.False(t, alive(pid), "both commands ran at one time")
	require.Equal(t, 1, j.count("signal 15"), "it was not asked before")
	require.Zero(t, next.end(), next.errs)
	run.signal(syscall.SIGCONT)
	require.Equal(t, 193, run.end(), run.errs)
}

// TestNetworkHangs: the command is asked and killed before the lease can end although no request is answered any more.
func TestNetworkHangs(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.start(append([]string{"run", "L", "--ttl", "4s", "--"}, j.worker("ignore")...)...)
	pid := j.pid(1)
	before := w.status("L")
	w.gate.hang(true)
	eventually(t, "the command was not killed", func() bool { return !alive(pid) })
	end, err := time.Parse(time.RFC3339, before.Expires)
	require.NoError(t, err)
	require.Less(t, time.Now(), end.Add(time.Second+4*time.Second/3*11/10+time.Second), "after the end of the lease that it was seen to have, and one renewal")
	asked := j.find("signal 15", 1)
	require.True(t, asked.at.Before(time.Now()))
	w.gate.hang(false)
	require.Equal(t, 193, run.end(), run.errs)
	require.Contains(t, run.errs.String(), "not renewed")
}
