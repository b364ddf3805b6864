//go:build unix

package fakelambda_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/e2e/fakelambda"
)

// bootstrap is the built function of testdata/handler.
var bootstrap string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fakelambda")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bootstrap = filepath.Join(dir, "bootstrap")
	build := exec.CommandContext(context.Background(), "go", "build", "-tags", "lambda.norpc", "-o", bootstrap, "./testdata/handler")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the function: %v\n%s", err, out)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// answer is what the function says of itself.
type answer struct {
	Pid      int
	Count    int
	Ticks    int
	ID       string
	ARN      string
	Deadline int64
	Environ  []string
	Status   int
}

// newEnv makes an environment of the test function.
func newEnv(t *testing.T, o fakelambda.Options) *fakelambda.Env {
	t.Helper()
	o.Bootstrap = bootstrap
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	env, err := fakelambda.New(o)
	require.NoError(t, err)
	t.Cleanup(env.Close)
	return env
}

func event(do string) fakelambda.Invocation {
	return fakelambda.Invocation{Payload: fmt.Appendf(nil, `{"do":%q}`, do)}
}

// invoke runs the function and wants no more than a Result.
func invoke(t *testing.T, env *fakelambda.Env, do string) fakelambda.Result {
	t.Helper()
	res, err := env.Invoke(t.Context(), event(do))
	require.NoError(t, err)
	return res
}

// call runs the function and wants its answer.
func call(t *testing.T, env *fakelambda.Env, do string) answer {
	t.Helper()
	res := invoke(t, env, do)
	require.Empty(t, res.ErrorType, "%s", res.ErrorBody)
	var a answer
	require.NoError(t, json.Unmarshal(res.Body, &a))
	return a
}

// background runs the function and delivers its result.
func background(t *testing.T, env *fakelambda.Env, do string) <-chan fakelambda.Result {
	t.Helper()
	done := make(chan fakelambda.Result, 1)
	go func() {
		defer close(done)
		if res, err := env.Invoke(context.WithoutCancel(t.Context()), event(do)); err == nil {
			done <- res
		}
	}()
	return done
}

// wait is the result of an invocation in the background.
func wait(t *testing.T, done <-chan fakelambda.Result) fakelambda.Result {
	t.Helper()
	select {
	case res, ok := <-done:
		require.True(t, ok, "the invocation failed")
		return res
	case <-time.After(20 * time.Second):
		require.Fail(t, "the invocation did not end")
		return fakelambda.Result{}
	}
}

func waitLine(t *testing.T, env *fakelambda.Env, substring string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	line, err := env.WaitLine(ctx, substring)
	require.NoError(t, err)
	return line
}
