//go:build unix

package fakelambda_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/e2e/fakelambda"
)

func TestNormalAnswer(t *testing.T) {
	env := newEnv(t, fakelambda.Options{Timeout: 12 * time.Second})
	before := time.Now()
	in := event("answer")
	in.ID = "8a6f0c1e-0000-4000-8000-000000000001"
	res, err := env.Invoke(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, res.ErrorType)
	require.Empty(t, res.ErrorBody)
	require.True(t, res.Cold)
	require.Equal(t, in.ID, res.ID)
	require.Positive(t, res.Duration)
	require.Less(t, res.Duration, time.Since(before))

	a := call(t, env, "answer")
	require.Equal(t, env.Pid(), a.Pid)
	require.Equal(t, "arn:aws:lambda:eu-west-1:123456789012:function:test", a.ARN)
	require.WithinRange(t, time.UnixMilli(a.Deadline), before.Add(12*time.Second-time.Millisecond), time.Now().Add(12*time.Second))
}

func TestProcessIsReusedWarm(t *testing.T) {
	env := newEnv(t, fakelambda.Options{})
	require.Zero(t, env.Pid())
	first := call(t, env, "answer")
	res := invoke(t, env, "answer")
	require.False(t, res.Cold)
	third := call(t, env, "answer")
	require.Equal(t, []int{1, 3}, []int{first.Count, third.Count})
	require.Equal(t, first.Pid, third.Pid)
	require.Equal(t, 1, env.Starts())
}

func TestColdStartAfterKill(t *testing.T) {
	for name, kill := range map[string]func(*fakelambda.Env) error{
		"kill": (*fakelambda.Env).Kill, "term": (*fakelambda.Env).Term,
	} {
		t.Run(name, func(t *testing.T) {
			env := newEnv(t, fakelambda.Options{Freeze: true})
			first := call(t, env, "answer")
			require.NoError(t, kill(env))
			require.Zero(t, env.Pid())
			second := call(t, env, "answer")
			require.Equal(t, 1, second.Count)
			require.NotEqual(t, first.Pid, second.Pid)
			require.Equal(t, 2, env.Starts())
		})
	}
}

func TestSameRequestIDIsSentAgain(t *testing.T) {
	env := newEnv(t, fakelambda.Options{})
	done := make(chan struct{})
	in := event("hang")
	in.ID = "again"
	go func() {
		defer close(done)
		res, err := env.Invoke(context.WithoutCancel(t.Context()), in)
		if err != nil || res.ErrorType != fakelambda.ErrorExit {
			t.Errorf("first try: %v, %v", res, err)
		}
	}()
	waitLine(t, env, "started hang again")
	require.NoError(t, env.Kill())
	<-done

	retry := event("answer")
	retry.ID = in.ID
	for range 2 { // cold and warm
		res, err := env.Invoke(t.Context(), retry)
		require.NoError(t, err)
		require.Empty(t, res.ErrorType)
		require.Contains(t, string(res.Body), `"id":"again"`)
	}
	require.NotEqual(t, call(t, env, "answer").ID, call(t, env, "answer").ID, "an invocation without an id gets a new one")
}

func TestErrors(t *testing.T) {
	env := newEnv(t, fakelambda.Options{})
	pid := call(t, env, "answer").Pid
	for _, tt := range []struct {
		do, kind, body string
		warm           bool
	}{
		{"fail", "errorString", `{"errorMessage":"no luck","errorType":"errorString"}`, true},
		{"stream and fail", "errorString", `{"errorMessage":"source ran dry","errorType":"errorString"}`, true},
		{"panic", "string", `"errorMessage":"no hope"`, false},
		{"exit", fakelambda.ErrorExit, "Runtime exited without providing a reason", false},
	} {
		t.Run(tt.do, func(t *testing.T) {
			res := invoke(t, env, tt.do)
			require.Equal(t, tt.kind, res.ErrorType)
			require.Contains(t, string(res.ErrorBody), tt.body)
			require.Empty(t, res.Body)
			next := call(t, env, "answer")
			require.Equal(t, tt.warm, next.Pid == pid, "process reused")
			pid = next.Pid
		})
	}
}

func TestAnswerToAnotherInvocationIsRefused(t *testing.T) {
	env := newEnv(t, fakelambda.Options{})
	a := call(t, env, "answer another")
	require.Equal(t, 400, a.Status)
}

func TestCrashInInit(t *testing.T) {
	var lines []string
	env := newEnv(t, fakelambda.Options{Env: []string{"INIT=crash"}, OnLine: func(line string) { lines = append(lines, line) }})
	for range 2 {
		res := invoke(t, env, "answer")
		require.Equal(t, fakelambda.ErrorExit, res.ErrorType)
		require.Contains(t, string(res.ErrorBody), "exit status 7")
		require.True(t, res.Cold)
	}
	require.Equal(t, 2, env.Starts())
	require.Equal(t, []string{"crashing in init, without a newline", "crashing in init, without a newline"}, lines)
}

func TestInitTimeout(t *testing.T) {
	env := newEnv(t, fakelambda.Options{Env: []string{"INIT=hang"}, InitTimeout: 200 * time.Millisecond})
	res := invoke(t, env, "answer")
	require.Equal(t, fakelambda.ErrorTimeout, res.ErrorType)
	require.Contains(t, string(res.ErrorBody), "Init timed out after 0.20 seconds")
	require.Zero(t, env.Pid())
}

func TestOneInvocationAtATime(t *testing.T) {
	env := newEnv(t, fakelambda.Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := env.Invoke(t.Context(), event("work")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var order []string
	for _, line := range env.Lines() {
		if strings.HasPrefix(line, "started") || line == "working 39" {
			order = append(order, strings.Fields(line)[0])
		}
	}
	require.Equal(t, strings.Fields("started working started working started working started working"), order)
	require.Equal(t, 1, env.Starts())
}

func TestCallerGivesUp(t *testing.T) {
	errGone := errors.New("caller is gone")
	for name, o := range map[string]fakelambda.Options{"in init": {Env: []string{"INIT=hang"}}, "in the invocation": {}} {
		t.Run(name, func(t *testing.T) {
			env := newEnv(t, o)
			ctx, cancel := context.WithCancelCause(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := env.Invoke(ctx, event("hang"))
				failed <- err
			}()
			require.Eventually(t, func() bool { return env.Pid() != 0 }, 20*time.Second, time.Millisecond)
			if len(o.Env) == 0 {
				waitLine(t, env, "started hang")
			}

			waiting, stop := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errGone)
			defer stop()
			_, err := env.Invoke(waiting, event("answer"))
			require.ErrorIs(t, err, errGone)
			require.ErrorContains(t, err, "wait for the invocation before it")
			require.NotZero(t, env.Pid(), "who gives up waiting leaves the running invocation alone")

			cancel(errGone)
			require.ErrorIs(t, <-failed, errGone)
			require.Zero(t, env.Pid())
		})
	}
}

func TestCloseEndsARunningInvocation(t *testing.T) {
	env := newEnv(t, fakelambda.Options{})
	done := background(t, env, "hang")
	waitLine(t, env, "started hang")
	env.Close()
	env.Close()
	require.Equal(t, fakelambda.ErrorExit, wait(t, done).ErrorType)
	_, err := env.Invoke(t.Context(), event("answer"))
	require.ErrorIs(t, err, fakelambda.ErrClosed)
	for _, op := range []func() error{env.Pause, env.Resume, env.Kill, env.Term} {
		require.ErrorIs(t, op(), fakelambda.ErrNoProcess)
	}
}

func TestEnvironmentIsExplicit(t *testing.T) {
	for _, key := range []string{"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "HOME", "HTTP_PROXY", "AWS_REGION"} {
		t.Setenv(key, "leaked")
	}
	env := newEnv(t, fakelambda.Options{Env: []string{"TABLE=locks", "AWS_REGION=eu-central-1", "AWS_LAMBDA_RUNTIME_API=elsewhere"}})
	got := map[string]string{}
	for _, pair := range call(t, env, "answer").Environ {
		key, value, _ := strings.Cut(pair, "=")
		require.NotEqual(t, "leaked", value, key)
		got[key] = value
	}
	require.Equal(t, "locks", got["TABLE"])
	require.Equal(t, "eu-central-1", got["AWS_REGION"])
	require.Equal(t, "/dev/null", got["AWS_SHARED_CREDENTIALS_FILE"])
	require.Equal(t, filepath.Dir(bootstrap), got["LAMBDA_TASK_ROOT"])
	require.True(t, strings.HasPrefix(got["AWS_LAMBDA_RUNTIME_API"], "127.0.0.1:"), got["AWS_LAMBDA_RUNTIME_API"])
	require.NotContains(t, got, "HOME")
	require.NotContains(t, got, "AWS_ACCESS_KEY_ID")
}

func TestLines(t *testing.T) {
	lines := make(chan string, 1000)
	env := newEnv(t, fakelambda.Options{OnLine: func(line string) { lines <- line }})
	call(t, env, "work")
	require.Equal(t, "working 7", waitLine(t, env, "working 7"), "a line of the past")
	require.Contains(t, <-lines, "started work")

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := env.WaitNth(ctx, 2, "working 7")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `line 2 with "working 7"`)
	require.ErrorContains(t, err, "working 39", "the last lines help to find out why")

	second := make(chan string, 1)
	go func() {
		line, err := env.WaitNth(context.WithoutCancel(t.Context()), 2, "started work")
		second <- fmt.Sprint(line, err)
	}()
	call(t, env, "answer") // other lines do not count, nor does the first one count twice
	in := event("work")
	in.ID = "second"
	_, err = env.Invoke(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "started work second<nil>", <-second)
}

func TestBadOptionsAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for want, o := range map[string]fakelambda.Options{
		"no such file":              {Bootstrap: filepath.Join(t.TempDir(), "missing")},
		"not an executable file":    {Bootstrap: file},
		"must not be negative":      {Bootstrap: bootstrap, Timeout: -1},
		"unknown way to stop":       {Bootstrap: bootstrap, Stop: 3},
		"not of the form KEY=VALUE": {Bootstrap: bootstrap, Env: []string{"KEY"}},
	} {
		_, err := fakelambda.New(o)
		require.ErrorContains(t, err, want)
	}
}

func TestBootstrapThatCannotRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bootstrap")
	require.NoError(t, os.WriteFile(file, []byte("neither ELF nor script"), 0o700))
	env, err := fakelambda.New(fakelambda.Options{Bootstrap: file})
	require.NoError(t, err)
	defer env.Close()
	_, err = env.Invoke(t.Context(), event("answer"))
	require.ErrorContains(t, err, "exec format error")
	require.Zero(t, env.Starts())
}
