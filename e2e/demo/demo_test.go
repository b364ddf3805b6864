//go:build unix

package main_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// committed is the picture of the README, which tests leave alone.
const committed = "../../docs/demo.svg"

// program is a run of the demonstration.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	temp string // where the program puts what it needs for a while

	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // something was printed
}

// build makes the demonstration's binary, without the race detector: it is what users run.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "demo")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

func start(t *testing.T, bin string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.CommandContext(t.Context(), bin, args...), temp: t.TempDir(), more: make(chan struct{}, 1)}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) } // at the end of a failed test
	p.cmd.WaitDelay = 10 * time.Second
	p.cmd.Env = append(os.Environ(), "TMPDIR="+p.temp)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(t, p.cmd.Start())
	return p
}

// Write takes what the program prints.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
	return p.text.Write(b)
}

func (p *program) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// waitFor waits until the program has printed text.
func (p *program) waitFor(text string) {
	p.t.Helper()
	limit := time.After(5 * time.Minute)
	for !strings.Contains(p.printed(), text) {
		select {
		case <-p.more:
		case <-limit:
			require.Fail(p.t, "the program did not get so far", "%s", p.printed())
		}
	}
}

// wait waits for the end, and gives the exit code and the last line.
func (p *program) wait() (code int, last string) {
	p.t.Helper()
	err := p.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		require.NoError(p.t, err, p.printed())
	}
	p.t.Log("\n" + p.printed())
	lines := strings.Split(strings.TrimSpace(p.printed()), "\n")
	return p.cmd.ProcessState.ExitCode(), lines[len(lines)-1]
}

// leftNothing checks that no process and no file has outlived the program.
func (p *program) leftNothing() {
	p.t.Helper()
	pids := regexp.MustCompile(`\(pid (\d+)\)`).FindAllStringSubmatch(p.printed(), -1)
	require.Len(p.t, pids, 5)
	for _, m := range pids {
		pid, err := strconv.Atoi(m[1])
		require.NoError(p.t, err)
		require.ErrorIs(p.t, syscall.Kill(pid, 0), syscall.ESRCH, "process %d is still there", pid)
	}
	left, err := filepath.Glob(filepath.Join(p.temp, "cloudlease-demo-*"))
	require.NoError(p.t, err)
	require.Empty(p.t, left)
}

// picture is the file's content, nil if there is none.
func picture(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return content
}

// fits checks that nothing is wider than a terminal.
func fits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 100, line)
	}
}

func TestDemo(t *testing.T) {
	bin, before := build(t), picture(t, committed)
	t.Run("all", func(t *testing.T) { // returns when its parallel tests are done
		t.Run("with a fence the late write is refused", func(t *testing.T) {
			t.Parallel()
			svg := filepath.Join(t.TempDir(), "demo.svg")
			p := start(t, bin, "-fence=on", "-svg", svg)
			code, last := p.wait()
			require.Equal(t, "demo: ok ran=3 skipped=5 taken_over=2 stale_refused=1", last)
			require.Zero(t, code)
			p.leftNothing()
			fits(t, strings.ReplaceAll(p.printed(), svg, "demo.svg"))
			drawn(t, picture(t, svg))
		})
		t.Run("without a fence it is stored", func(t *testing.T) {
			t.Parallel()
			svg := filepath.Join(t.TempDir(), "demo.svg")
			p := start(t, bin, "-fence=off", "-svg", svg)
			code, last := p.wait()
			require.Equal(t, "demo: FAILED: this is what happens without a fence: an older run has overwritten the newer result", last)
			require.Equal(t, 1, code)
			p.leftNothing()
			fits(t, p.printed())
			require.Nil(t, picture(t, svg), "a picture of a failure was written")
		})
		t.Run("interrupted it leaves nothing behind", func(t *testing.T) {
			t.Parallel()
			p := start(t, bin, "-svg", filepath.Join(t.TempDir(), "demo.svg"))
			p.waitFor("which finds the lease taken and waits") // one process is dead, one waits, the others are frozen
			require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
			code, last := p.wait()
			require.True(t, strings.HasPrefix(last, "demo: FAILED: "), last)
			require.Equal(t, 1, code)
			p.leftNothing()
		})
		for _, args := range [][]string{{"-fence=maybe"}, {"more"}, {"-unknown"}} {
			t.Run("nonsense "+args[0], func(t *testing.T) {
				t.Parallel()
				code, _ := start(t, bin, args...).wait()
				require.Equal(t, 2, code)
			})
		}
	})
	require.Equal(t, before, picture(t, committed), "the committed picture was touched")
}

// drawn checks that a picture shows what happened.
func drawn(t *testing.T, svg []byte) {
	t.Helper()
	marks := map[string]int{}
	for _, n := range parse(t, svg) {
		marks[n.attrs["class"]]++
	}
	const legend = 1
	for class, n := range map[string]int{
		"lease": 5 + legend, "left": 2 + legend, "skip": 5 + legend, "dead": 1 + legend, "frozen": 1, "link okl": 3, "link nol": 1,
	} {
		require.Equal(t, n, marks[class], class)
	}
}
