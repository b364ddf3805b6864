//go:build unix

package main_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// TestMain lets the scenes run at once, on however many processors: they wait more than they compute.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// build makes the program, without the race detector: its workers shall be as quick as users' programs.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "torture")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

// torture runs the program with a directory of its own for temporary files, and gives its exit code and what it printed.
func torture(t *testing.T, bin string, args ...string) (code int, printed, temp string) {
	t.Helper()
	temp = t.TempDir()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		require.NoError(t, err)
	}
	t.Log("\n" + string(out))
	return cmd.ProcessState.ExitCode(), string(out), temp
}

func TestNonsense(t *testing.T) {
	bin := build(t)
	for _, args := range [][]string{{"more"}, {"-unknown"}, {"-workers", "1"}, {"-locks", "0"}, {"-for", "0s"}} {
		code, _, _ := torture(t, bin, args...)
		require.Equal(t, 2, code, args)
	}
	code, printed, _ := torture(t, bin, "-store", "nowhere")
	require.Equal(t, 1, code)
	require.Contains(t, printed, `unknown store "nowhere": use one of dynamodb`)
}

func TestTorture(t *testing.T) {
	tests := map[string]func(*testing.T, string){}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		tests["faults of all kinds, no violation"] = short
		tests["the same on Consul"] = onConsul
		tests["functions, delivered twice and killed"] = functions
		tests["set back to an older copy"] = setBack
		tests["wrong clocks beyond the assumptions"] = beyond
		tests["interrupted it leaves nothing behind"] = interrupted
	}
	bin := ""
	if len(tests) > 0 {
		bin = build(t)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, bin)
		})
	}
}

func short(t *testing.T, bin string) { faultsOfAllKinds(t, bin, "dynamodb", "45s") }

// onConsul takes a little longer, because every fault is sized by the TTL, which is longer there.
func onConsul(t *testing.T, bin string) { faultsOfAllKinds(t, bin, "consul", "60s") }

// faultsOfAllKinds fails as well if there was none of some kind.
func faultsOfAllKinds(t *testing.T, bin, store, long string) {
	t.Helper()
	code, printed, temp := torture(t, bin, "-store", store, "-for", long, "-seed", "1")
	require.Zero(t, code)
	require.True(t, strings.HasSuffix(printed, "torture: ok\n"))
	for _, line := range []string{"operations", "faults", "take-overs", "longest wait"} {
		require.Regexp(t, `(?m)^  `+line+` +\S`, printed)
	}
	require.Regexp(t, `(?m)^  violations +0$`, printed)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left, "a history of which nobody needs anything is still there")
}

func functions(t *testing.T, bin string) {
	code, printed, _ := torture(t, bin, "-scene", "lambda", "-occurrences", "50", "-seed", "1")
	require.Zero(t, code)
	require.Regexp(t, `(?m)^ +50 outcome ran$`, printed)
}

func setBack(t *testing.T, bin string) {
	code, printed, _ := torture(t, bin, "-scene", "restore", "-for", "30s", "-seed", "1")
	require.Zero(t, code)
	require.Regexp(t, `(?m)^  violations +0$`, printed)
}

func beyond(t *testing.T, bin string) {
	code, printed, _ := torture(t, bin, "-scene", "beyond", "-for", "60s", "-seed", "1")
	require.Zero(t, code)
	require.Regexp(t, `(?m)^  violations +0$`, printed)
}

// interrupted ends the program in mid-run: no worker may outlive it.
func interrupted(t *testing.T, bin string) {
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), bin, "-for", "1h", "-seed", "1")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var printed strings.Builder
	cmd.Stdout = &printed
	require.NoError(t, cmd.Start())
	started := func() []history.Event {
		files, err := filepath.Glob(filepath.Join(temp, "cloudlease-torture-*", "w*.jsonl"))
		require.NoError(t, err)
		events, err := history.Read(files...)
		require.NoError(t, err)
		return slices.DeleteFunc(events, func(e history.Event) bool { return e.Kind != history.Started })
	}
	for began := time.Now(); len(started()) < 4 && time.Since(began) < time.Minute; {
		time.Sleep(50 * time.Millisecond)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // its exit code is looked at below
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Contains(t, printed.String(), "torture: FAILED")
	workers := started()
	require.GreaterOrEqual(t, len(workers), 4)
	for _, e := range workers {
		pid, err := strconv.Atoi(e.Value)
		require.NoError(t, err)
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "worker %s.%d", e.Worker, e.Life)
	}
}
