//go:build linux

package main_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCL05_StandardInput reaches the command byte for byte, and ends where it ends.
func TestCL05_StandardInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, result{out: "foo"}, w.with("foo", "run", "L", "--", "cat"))
	big := strings.Repeat("0123456789abcde\n", 10<<20/16)
	r := w.with(big, "run", "L", "--", "cat")
	require.Zero(t, r.code)
	require.True(t, r.out == big, "%d of %d bytes", len(r.out), len(big))
	require.Equal(t, result{out: "end\n"}, w.with("", "run", "L", "--", "sh", "-c", "cat; echo end"))
}

// TestCL05_Arguments go to the command as they are.
func TestCL05_Arguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	args := []string{"-v", "--", "--help", "two words", `"quoted" 'twice'`, "", "*", "$HOME", "a\nb", "--ttl", "-o"}
	r := w.with("", append([]string{"run", "L", "--", "printf", "[%s]"}, args...)...)
	require.Equal(t, result{out: "[" + strings.Join(args, "][") + "]"}, r)
	require.Equal(t, result{out: "a^I\n"}, w.with("a\t\n", "run", "L", "--ttl", "20s", "--", "cat", "-v", "-T", "--", "-"))
}

// TestCL05_Environment: the command's is the caller's, and what the lease adds.
func TestCL05_Environment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env = append(w.env, "CLOUDLEASE_TOKEN=7", "CLOUDLEASE_OCCURRENCE=yesterday", "MINE=a b")
	out := w.ok("run", "the job", "--", "env")
	has := map[string]string{}
	for l := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "=")
		require.NotContains(t, has, name, "twice")
		has[name] = value
	}
	require.Equal(t, w.token("the job"), has["CLOUDLEASE_TOKEN"])
	require.Equal(t, "the job", has["CLOUDLEASE_NAME"])
	require.Contains(t, has["CLOUDLEASE_HOLDER"], ":")
	require.Contains(t, has["CLOUDLEASE_STORE"], "dynamodb://locks?")
	require.NotContains(t, has, "CLOUDLEASE_OCCURRENCE")
	require.Equal(t, "a b", has["MINE"])
	deadline, err := time.Parse(time.RFC3339Nano, has["CLOUDLEASE_DEADLINE"])
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(27*time.Second), deadline, 15*time.Second)
	require.Contains(t, w.ok("run", "j", "--occurrence", "2026-03-02T07:00:00+01:00", "--", "env"), "CLOUDLEASE_OCCURRENCE=2026-03-02T06:00:00Z\n")
}

// TestCL05_BrokenPipe: the command meets a closed pipe as it does without the wrapper.
func TestCL05_BrokenPipe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, argv := range [][]string{{"yes"}, {binary, "run", "L", "--", "yes"}} {
		cmd := w.command(t.Context())
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `{ "$@"; echo "code $?" >&2; } | head -1`, "sh"}, argv...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.NoError(t, cmd.Run())
		require.Equal(t, "code 141\n", errs.String())
	}
}

// TestCL05_WaitingReadsNothing: while the lock is waited for, stdin is left alone, and stdout is silent.
func TestCL05_WaitingReadsNothing(t *testing.T) {
	t.Parallel()
	w, j := newWorld(t), newJournal(t)
	holder := w.start(append([]string{"run", "L", "--"}, j.worker()...)...)
	j.find("begin", 1)
	r, in, err := os.Pipe()
	require.NoError(t, err)
	_, err = io.WriteString(in, "all of it")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := w.command(ctx, "run", "L", "--wait", "1m", "--", "cat")
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	written := func() string {
		text, err := os.ReadFile(out.Name())
		require.NoError(t, err)
		return string(text)
	}
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, out, &errs
	require.NoError(t, cmd.Start())
	eventually(t, "it does not wait", func() bool { return len(w.gate.requests("L")) > 3 })
	require.Empty(t, written())
	holder.signal(syscall.SIGTERM)
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait(), errs.String())
	require.Equal(t, "all of it", written())
	require.Empty(t, errs.String(), "stderr is no terminal, so there is no progress")
	require.NoError(t, errors.Join(r.Close(), out.Close()))
}
