//go:build linux

package main_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// harmful is what a writer of records could try on an operator's terminal: sequences of both kinds of control characters, a line
// that looks like one of the program's, a text that runs backwards, and more than fits on a screen.
const harmful = "evil\x1b]0;owned\x07\x1b[2J\u009b31m\r\ncloudlease: all is well\t\u202egnp\u2028"

// TestStoredTextDoesNotSteerTheTerminal: what somebody has written into a record comes out without what a terminal obeys, in tables,
// in messages, on the line of a wait and as JSON, which gives it back unchanged to a program.
func TestStoredTextDoesNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.start(append([]string{"run", "L", "--ttl", "1m", "--occurrence", "2026-03-02T06:00:00Z", "--"}, j.worker()...)...)
	j.find("begin", 1)
	long := harmful + strings.Repeat("x", 2500)
	_, err := emulator.Client(w.endpoint(), nil).UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: aws.String("locks"), Key: map[string]types.AttributeValue{"name": &types.AttributeValueMemberS{Value: "L"}},
		UpdateExpression: aws.String("SET holder = :h"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":h": &types.AttributeValueMemberS{Value: long + "#1"},
		},
	})
	require.NoError(t, err)
	for _, args := range [][]string{
		{"status", "L"},
		{"list"},
		{"history", "L"},
		{"run", "L", "--", "true"},
		{"run", "L", "--if-held", "skip", "--", "true"},
		{"run", "L", "--occurrence", "2026-03-02T07:00:00Z", "--", "true"},
		{"floor", "L", "9"},
		{"break", "L", "--token", "9", "--yes"},
		{"status", "L", "-o", "json"},
		{"list", "-o", "json"},
		{"history", "L", "-o", "json"},
	} {
		r := w.cli(args...)
		text := r.out + r.err
		require.Contains(t, text, "evil", args)
		require.NotRegexp(t, `(?m)^cloudlease: all is well`, text, args)
		for line := range strings.Lines(r.err) {
			require.Less(t, len(line), 2100)
		}
		for _, c := range text {
			require.False(t, c != '\n' && unicode.In(c, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp), "%v: %U in %q", args, c, text)
		}
	}
	require.Equal(t, long, w.status("L").Holder)
	for line := range strings.SplitSeq(w.ok("list"), "\n") {
		require.Less(t, len(line), 400)
	}

	s := w.terminal(binary, "run", "L", "--wait", "1m", "--", "true")
	line := s.see(`\r\x1b\[K(cloudlease: waiting for L, held by evil[^\r]* \(\d+s\))`)[1]
	require.Less(t, len([]rune(line)), 80, "it would be wrapped, and not be taken off again")
	require.NotContains(t, line, "\x1b")
	s.key("\x03")
	s.see(`command was not started`)
	run.signal(syscall.SIGKILL)
}

// TestJSON: with -o json the results of all commands are JSON.
func TestJSON(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	at := "2026-03-02T06:00:00Z"
	w.ok("run", "J", "--occurrence", at, "--", "true")
	w.start(append([]string{"run", "held", "--"}, j.worker()...)...)
	j.find("begin", 1)
	for _, args := range [][]string{
		{"init"},
		{"doctor"},
		{"list"},
		{"list", "none"},
		{"status", "none"},
		{"status", "J"},
		{"history", "none"},
		{"history", "J"},
		{"clear", "J", at},
		{"pause", "J", "--why", `a "reason"`},
		{"history", "J"},
		{"resume", "J"},
		{"floor", "J", "9"},
		{"break", "held", "--token", w.token("held"), "--yes"},
		{"status", "held"},
	} {
		var v any
		out := w.ok(append(args, "-o", "json")...)
		require.NoError(t, json.Unmarshal([]byte(out), &v), "%v: %s", args, out)
	}
	var done struct {
		Did, Name string
		Token     uint64
	}
	require.NoError(t, json.Unmarshal([]byte(w.ok("floor", "J", "11", "-o", "json")), &done))
	require.Equal(t, "floor J 11", done.Did+" "+done.Name+" "+itoa(int(done.Token))) //nolint:gosec // 11
}

// TestCL03_JobStopped: the wrapper's whole process group is stopped, as kill -STOP %1 does. The helper, which is not in it, ends the
// command in time.
func TestCL03_JobStopped(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.command(t.Context(), append([]string{"run", "L", "--ttl", "4s", "--"}, j.worker("ignore")...)...)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, run.Start())
	pid := j.pid(1)
	require.NoError(t, syscall.Kill(-run.Process.Pid, syscall.SIGSTOP))
	next := w.start(append([]string{"run", "L", "--wait", "1m", "--ttl", "4s", "--"}, j.worker("for=1ms")...)...)
	j.find("begin", 2)
	require.False(t, alive(pid), "both commands ran at one time")
	require.Zero(t, next.end(), next.errs)
	require.NoError(t, syscall.Kill(-run.Process.Pid, syscall.SIGCONT))
	require.Equal(t, 193, codeOf(t, run.Wait()))
}

// TestCL03_SupervisorStopped: somebody has stopped the helper alone. When the lease is lost, the command and what has left its
// group are killed all the same, and the wrapper ends.
func TestCL03_SupervisorStopped(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	run := w.start(append([]string{"run", "L", "--ttl", "4s", "--", "sh", "-c", `"$@" ignore & "$@" ignore setsid & wait`, "sh"}, j.worker()...)...)
	first, second := j.pid(1), j.pid(2)
	helper := parent(t, parent(t, first))
	require.NoError(t, syscall.Kill(helper, syscall.SIGSTOP))
	w.ok("break", "L", "--token", w.token("L"), "--yes")
	require.Equal(t, 193, run.end(), run.errs)
	require.False(t, alive(first))
	require.False(t, alive(second))
}

// TestCL05_Descriptors: the command gets those that the caller gives, as from a shell's 3<file or a make's job server.
func TestCL05_Descriptors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for fd := 3; fd < 9; fd++ {
		cmd := w.command(t.Context())
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `exec "$0" run L -- sh -c 'cat <&` + itoa(fd) + `'`, binary}
		for range fd - 2 {
			r, pipe, err := os.Pipe()
			require.NoError(t, err)
			_, err = pipe.WriteString("given\n")
			require.NoError(t, err)
			require.NoError(t, pipe.Close())
			cmd.ExtraFiles = append(cmd.ExtraFiles, r)
		}
		out, err := cmd.Output()
		for _, r := range cmd.ExtraFiles {
			require.NoError(t, r.Close())
		}
		require.NoError(t, err)
		require.Equal(t, "given\n", string(out), "descriptor %d", fd)
	}
}

// TestCL05_MessagesThatNobodyReads: stderr is a pipe whose reader is gone. What the wrapper says there does not end it, nor its command.
func TestCL05_MessagesThatNobodyReads(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	r, pipe, err := os.Pipe()
	require.NoError(t, err)
	run := w.command(t.Context(), append([]string{"run", "L", "--ttl", "6s", "--"}, j.worker()...)...)
	run.Stderr = pipe
	require.NoError(t, run.Start())
	require.NoError(t, r.Close())
	require.NoError(t, pipe.Close())
	j.find("begin", 1)
	seen := len(w.gate.requests("L"))
	w.gate.refuse("UpdateItem", "AccessDeniedException")
	eventually(t, "it does not renew", func() bool { return len(w.gate.requests("L")) > seen+1 })
	w.gate.refuse("UpdateItem", "")
	time.Sleep(200 * time.Millisecond) // the message is on its way; one that comes later is not looked for, and fails nothing
	require.NoError(t, run.Process.Signal(syscall.SIGTERM))
	require.Zero(t, codeOf(t, run.Wait()))
	require.Equal(t, 1, j.count("end"))
	require.Equal(t, "free", w.status("L").State)
}

// TestWatchSaysWhatItWaitsFor: a look that takes longer than a second is told on a terminal.
func TestWatchSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gate.hang(true)
	s := w.terminal(binary, "watch")
	s.see(`cloudlease: listing \(1s\)`)
	w.gate.hang(false)
	s.key("\x03")
	require.Zero(t, s.end(), s.text())
}

// TestNextStep: errors of newcomers name what to do.
func TestNextStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	script := func(name, text string) string {
		path := dir + "/" + name
		require.NoError(t, os.WriteFile(path, []byte(text), 0o700)) //nolint:gosec // a script
		return path
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"run", "L", "rsync", "-a", "x"}, 194, "goes behind --: cloudlease run NAME -- COMMAND"},
		{[]string{"run", "L", "--tll", "3s", "--", "true"}, 194, "unknown flag: --tll\n"},
		{[]string{"status"}, 194, "status takes 1 argument(s), NAME, not 0"},
		{[]string{"clear", "J"}, 194, "clear takes 2 argument(s), NAME and OCCURRENCE, not 1"},
		{[]string{"run", "L", "--", script("none", "echo")}, 126, "#!/bin/sh"},
		{[]string{"run", "L", "--", script("lost", "#!/no/such/interpreter\n")}, 127, "interpreter that it names"},
	} {
		r := w.cli(c.args...)
		require.Equal(t, c.code, r.code, r.err)
		require.Contains(t, r.err, c.says)
	}
	require.Regexp(t, regexp.MustCompile(`^cloudlease version \S+\n$`), w.ok("--version"))
	require.NotContains(t, w.cli("list", "--store", "AccountName=a;AccountKey=hush").err, "hush")
}
