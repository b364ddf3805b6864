//go:build linux

package main_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// screen is a terminal with a program on it, and all that was written there.
type screen struct {
	t    testing.TB
	cmd  *exec.Cmd
	f    *os.File
	done chan struct{}

	mu  sync.Mutex
	all bytes.Buffer
	at  int // up to where see has looked
}

// terminal runs a program in a session of its own, on a terminal.
func (w *world) terminal(program string, args ...string) *screen {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), time.Minute)
	s := &screen{t: w.t, cmd: exec.CommandContext(ctx, program, args...), done: make(chan struct{})}
	s.cmd.Env = slices.Concat(w.env, []string{"PS1=$ ", "BIN=" + binary, "WORK=" + os.Args[0]})
	f, err := pty.StartWithSize(s.cmd, &pty.Winsize{Rows: 24, Cols: 80})
	require.NoError(w.t, err)
	s.f = f
	go func() {
		defer close(s.done)
		for b := make([]byte, 4096); ; {
			n, err := f.Read(b)
			s.mu.Lock()
			s.all.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return // the last program has closed the terminal
			}
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		_ = s.cmd.Wait()
		_ = f.Close()
		select {
		case <-s.done:
		case <-time.After(5 * time.Second): // a read that has begun is not ended by Close
			w.t.Error("a program still has the terminal")
		}
	})
	return s
}

// key types text.
func (s *screen) key(text string) {
	s.t.Helper()
	_, err := s.f.WriteString(text)
	require.NoError(s.t, err)
}

// see waits until a pattern is written, after what the last see has found.
func (s *screen) see(pattern string) []string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	eventually(s.t, "not on the screen: "+pattern, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		rest := s.all.Bytes()[s.at:]
		at := re.FindSubmatchIndex(rest)
		if at == nil {
			return false
		}
		found = nil
		for _, m := range re.FindSubmatch(rest) {
			found = append(found, string(m))
		}
		s.at += at[1]
		return true
	})
	return found
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// end waits for the program's end and returns its code.
func (s *screen) end() int {
	s.t.Helper()
	return codeOf(s.t, s.cmd.Wait())
}

// modes are the terminal's.
func (s *screen) modes() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.f.Fd()), unix.TCGETS)
	require.NoError(s.t, err)
	return *m
}

// TestCL05_Terminal: the command has the terminal: it reads lines, sees the size, gets Ctrl-C and Ctrl-D, and the wrapper lives on.
func TestCL05_Terminal(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	s := w.terminal(binary, "run", "L", "--", "sh", "-c",
		`trap : INT; trap 'stty size' WINCH; sleep 0.3; cut -d" " -f5,8 /proc/$$/stat; echo "size $(stty size)"; read x; echo "got <$x>"; "$@"; cat; echo over; exit 4`, "sh",
		os.Args[0], workerArgument, j.file, "for=1500ms")
	front := s.see(`(\d+) (\d+)\r\n`)
	require.Equal(t, front[1], front[2], "its group is in the foreground, although it has not asked")
	s.see(`size 24 80`)
	s.key("a line\r")
	s.see(`got <a line>`)
	j.find("begin", 1)
	require.NoError(t, pty.Setsize(s.f, &pty.Winsize{Rows: 30, Cols: 100}))
	s.key("\x03")
	j.find("signal 2", 1)
	s.see(`30 100`)
	s.key("more\r")
	s.see(`more\r\nmore`)
	s.key("\x04")
	s.see(`over`)
	require.Equal(t, 4, s.end(), s.text())
	require.Equal(t, 1, j.count("signal 2"))
	require.Equal(t, "free", w.status("L").State)
}

// TestCL05_CtrlCEndsTheCommand and not the wrapper: it gives the lock back and tells the command's own end.
func TestCL05_CtrlCEndsTheCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.terminal(binary, "run", "L", "--", "sh", "-c", "stty -echo; echo ready; exec sleep 60")
	before := s.modes()
	s.see("ready")
	require.NotEqual(t, before, s.modes())
	s.key("\x03")
	require.Equal(t, 130, s.end(), s.text())
	require.Equal(t, before, s.modes(), "the terminal's modes are restored")
	require.Equal(t, "free", w.status("L").State)
}

// TestCL05_InteractiveShell has job control of its own, on the wrapper's terminal.
func TestCL05_InteractiveShell(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.terminal(binary, "run", "L", "--", "bash", "--norc", "--noprofile", "-i")
	s.key("echo $((6*7)) $CLOUDLEASE_NAME\r")
	s.see(`42 L`)
	s.key("sleep 60\r")
	time.Sleep(200 * time.Millisecond)
	s.key("\x1a")
	s.see(`Stopped\s+sleep 60`)
	s.key("kill %1; exit 9\r")
	s.key("exit 9\r") // a shell with stopped jobs wants to hear it twice
	require.Equal(t, 9, s.end(), s.text())
	require.NotContains(t, s.text(), "no job control")
}

// TestCL05_Suspended: Ctrl-Z stops command and wrapper, so that the shell has the terminal; fg goes on with both.
func TestCL05_Suspended(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	s := w.terminal("bash", "--norc", "--noprofile", "-i")
	s.key(`"$BIN" run L -- sh -c 'echo "run""ning"; read x; echo "got <$x>"; exit 6'` + "\r")
	s.see(`running`)
	s.key("\x1a")
	s.see(`Stopped.*run L`)
	s.key("echo shell $((1+1))\r")
	s.see(`shell 2`)
	s.key("fg\r")
	s.see(`run L`)
	time.Sleep(200 * time.Millisecond)
	s.key("again\r")
	s.see(`got <again>`)
	s.key("echo code $?\r")
	s.see(`code 6`)
	s.key("exit\r")
	require.Zero(t, s.end())
	require.Zero(t, j.count("begin"))
}

// TestCL05_SuspendedForTooLong: the lease runs out while the job is stopped. The command never runs on: after fg the wrapper tells the
// loss.
func TestCL05_SuspendedForTooLong(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	s := w.terminal("bash", "--norc", "--noprofile", "-i")
	s.key(`"$BIN" run L --ttl 3s -- "$WORK" ` + workerArgument + " " + j.file + " ignore\r")
	pid := j.pid(1)
	s.key("\x1a")
	s.see(`Stopped`)
	next := w.start(append([]string{"run", "L", "--wait", "1m", "--"}, j.worker("for=1ms")...)...)
	require.Zero(t, next.end(), next.errs)
	ended := len(j.lines())
	s.key("fg\r")
	s.see(`lease`)
	s.see(`\$ `)
	s.key("echo code $?\r")
	s.see(`code 193`)
	require.False(t, alive(pid))
	for _, l := range j.lines()[ended:] {
		require.Fail(t, "the stopped command ran on", l.text)
	}
	s.key("exit\r")
	require.Zero(t, s.end())
}

// TestCL05_Pipeline: with stdout in a pipe the rest of the pipeline keeps the terminal, until the command asks for it.
func TestCL05_Pipeline(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	s := w.terminal("bash", "--norc", "--noprofile", "-i")
	s.key(`"$BIN" run L -- sh -c 'read x; echo "got <$x>"' | cat` + "\r")
	time.Sleep(300 * time.Millisecond)
	s.key("typed\r")
	s.see(`got <typed>`)
	s.see(`\$ `)
	s.key(`"$BIN" run L -- "$WORK" ` + workerArgument + " " + j.file + " for=2s | cat\r")
	j.find("begin", 1)
	s.key("\x03")
	j.find("signal 2", 1)
	j.find("end", 1)
	s.key("echo code ${PIPESTATUS[0]}\r")
	s.see(`code 0`)
	require.Equal(t, 1, j.count("signal 2"))
	s.key("exit\r")
	require.Zero(t, s.end())
}

// TestCL05_Background: a run in the background that reads is stopped, as without the wrapper, and goes on in the foreground.
func TestCL05_Background(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.terminal("bash", "--norc", "--noprofile", "-i")
	s.key(`"$BIN" run L -- sh -c 'read x; echo "got <$x>"' &` + "\r")
	eventually(t, "not held", func() bool { return w.status("L").State == "held" })
	time.Sleep(300 * time.Millisecond)
	s.key("jobs\r")
	s.see(`Stopped.*run L`)
	s.key("fg\r")
	time.Sleep(300 * time.Millisecond)
	s.key("typed\r")
	s.see(`got <typed>`)
	s.key("exit\r")
	require.Zero(t, s.end())
}

// TestCL05_Progress: a wait of more than a second is told on a terminal, and leaves nothing there.
func TestCL05_Progress(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	holder := w.start(append([]string{"run", "L", "--"}, j.worker()...)...)
	j.find("begin", 1)
	s := w.terminal(binary, "run", "L", "--wait", "1m", "--", "echo", "mine")
	s.see(`cloudlease: waiting for L, held by [^ ]+ \(1s\)`)
	holder.signal(syscall.SIGTERM)
	s.see(`\r\x1b\[Kmine`)
	require.Zero(t, s.end(), s.text())
	require.Equal(t, 1, strings.Count(s.text(), "mine"))
}
