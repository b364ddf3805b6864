//go:build unix

package fakelambda_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/e2e/fakelambda"
)

func TestTimeout(t *testing.T) {
	const limit = 300 * time.Millisecond
	for _, tt := range []struct {
		name     string
		function string // what it does about SIGTERM
		stop     fakelambda.Stop
		told     bool
		least    time.Duration // from the start to the end of the process
		most     time.Duration
	}{
		{"no extension: killed at once", "handler", fakelambda.StopLikeLambda, false, limit, limit + 450*time.Millisecond},
		{"extension: told, killed after the grace", "extension", fakelambda.StopLikeLambda, true, limit + 500*time.Millisecond, time.Minute},
		{"extension: told, exits by itself", "extension-exit", fakelambda.StopLikeLambda, true, limit, limit + 450*time.Millisecond},
		{"always told", "handler", fakelambda.StopTerm, true, limit + 500*time.Millisecond, time.Minute},
		{"never told", "extension", fakelambda.StopKill, false, limit, limit + 450*time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := newEnv(t, fakelambda.Options{Timeout: limit, Stop: tt.stop, Env: []string{"SIGTERM=" + tt.function}})
			call(t, env, "answer") // init is not part of what is timed
			before := time.Now()
			res := invoke(t, env, "hang")
			took := time.Since(before)
			require.Equal(t, fakelambda.ErrorTimeout, res.ErrorType)
			require.Contains(t, string(res.ErrorBody), "Task timed out after 0.30 seconds")
			require.GreaterOrEqual(t, res.Duration, limit)
			require.Zero(t, env.Pid())
			require.Equal(t, tt.told, slices.Contains(env.Lines(), "told to stop"))
			require.GreaterOrEqual(t, took, tt.least)
			require.Less(t, took, tt.most)
			require.Equal(t, 1, call(t, env, "answer").Count, "the next one is a cold start")
		})
	}
}

// The answer reaches the caller even if the function then keeps its runtime from polling until the limit.
func TestAnsweredButDidNotComeBack(t *testing.T) {
	env := newEnv(t, fakelambda.Options{Timeout: 300 * time.Millisecond})
	res := invoke(t, env, "answer and hang")
	require.Empty(t, res.ErrorType)
	require.Equal(t, `"answered"`, string(res.Body))
	require.GreaterOrEqual(t, res.Duration, 300*time.Millisecond)
	require.Zero(t, env.Pid())
}

func TestTermInAnInvocation(t *testing.T) {
	env := newEnv(t, fakelambda.Options{Env: []string{"SIGTERM=handler"}})
	done := background(t, env, "hang")
	waitLine(t, env, "started hang")
	require.NoError(t, env.Pause())
	before := time.Now()
	require.NoError(t, env.Term())
	require.GreaterOrEqual(t, time.Since(before), 500*time.Millisecond, "the function ignores it")
	require.Contains(t, env.Lines(), "told to stop", "a paused process is resumed for the signal")
	res := wait(t, done)
	require.Equal(t, fakelambda.ErrorExit, res.ErrorType)
	require.Contains(t, string(res.ErrorBody), "signal: killed")
}

func TestCloseTellsLikeLambda(t *testing.T) {
	env := newEnv(t, fakelambda.Options{Freeze: true, Env: []string{"SIGTERM=extension-exit"}})
	call(t, env, "answer")
	env.Close()
	require.Contains(t, env.Lines(), "told to stop")
}

func TestPauseAndResumeInMidRun(t *testing.T) {
	env := newEnv(t, fakelambda.Options{})
	done := background(t, env, "work")
	waitLine(t, env, "working 3")
	require.NoError(t, env.Pause())
	settle(t, env)
	before := len(env.Lines())
	time.Sleep(600 * time.Millisecond) // longer than the rest of the work
	require.Len(t, env.Lines(), before, "a paused process printed something")
	require.NotContains(t, env.Lines(), "working 39")
	require.NoError(t, env.Resume())
	res := wait(t, done)
	require.Empty(t, res.ErrorType)
	require.Contains(t, env.Lines(), "working 39")
	require.Greater(t, res.Duration, 600*time.Millisecond)
}

func TestKillWhilePaused(t *testing.T) {
	env := newEnv(t, fakelambda.Options{})
	done := background(t, env, "work")
	waitLine(t, env, "working 3")
	require.NoError(t, env.Pause())
	require.NoError(t, env.Kill())
	require.Equal(t, fakelambda.ErrorExit, wait(t, done).ErrorType)
	require.NotContains(t, env.Lines(), "working 39")
}

func TestPausedBeyondTheLimit(t *testing.T) {
	env := newEnv(t, fakelambda.Options{Timeout: time.Second})
	done := background(t, env, "hang")
	waitLine(t, env, "started hang")
	require.NoError(t, env.Pause())
	require.Equal(t, fakelambda.ErrorTimeout, wait(t, done).ErrorType)
}

func TestFreezeBetweenInvocations(t *testing.T) {
	const idle = 500 * time.Millisecond // 100 ticks of the function's background goroutine
	for name, freeze := range map[string]bool{"frozen": true, "not frozen": false} {
		t.Run(name, func(t *testing.T) {
			env := newEnv(t, fakelambda.Options{Freeze: freeze})
			pid := call(t, env, "answer").Pid
			time.Sleep(idle)
			a := call(t, env, "answer")
			require.Equal(t, pid, a.Pid)
			if freeze {
				require.Less(t, a.Ticks, 40, "background work went on while frozen")
			} else {
				require.Greater(t, a.Ticks, 40)
			}
		})
	}
}

// settle waits until everything that was printed has been read.
func settle(t *testing.T, env *fakelambda.Env) {
	t.Helper()
	last := -1
	require.Eventually(t, func() bool {
		n := len(strings.Join(env.Lines(), "\n"))
		same := n == last
		last = n
		return same
	}, 10*time.Second, 50*time.Millisecond)
}
