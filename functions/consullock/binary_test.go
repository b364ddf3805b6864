//go:build unix

package main

import (
	"encoding/json"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/e2e/fakelambda"
	"github.com/cloudlease/cloudlease/functions/internal/functiontest"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// TestBinary runs the real binary as AWS Lambda does: once per occurrence over several environments; a run that is asked to stop
// leaves the lock free and the occurrence to the retry; and one that thaws without its session and its connections goes on.
func TestBinary(t *testing.T) {
	w := newBinary(t)
	stopped := w.environment("SETTLEMENT_PACE=1h")
	done := make(chan fakelambda.Result, 1)
	go func() {
		res, err := stopped.Invoke(t.Context(), fakelambda.Invocation{Payload: []byte(functiontest.Event)})
		if err != nil {
			res.ErrorType = err.Error()
		}
		done <- res
	}()
	require.Eventually(t, func() bool { return w.lock().State == lease.Held }, time.Minute, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(stopped.Pid(), syscall.SIGTERM)) // Lambda's, without the kill that follows on a busy machine
	require.NotEmpty(t, (<-done).ErrorType, "the platform tries again")
	stopped.Close()
	info := w.lock()
	require.Equal(t, lease.Free, info.State, "and not in a lock-delay")

	first := w.environment()
	r := w.settle(first, functiontest.Event)
	require.Equal(t, []any{"2026-03-01", 30, "2026-03-02T00:05:00Z"}, []any{r.Day, r.Count, r.Occurrence})
	require.Greater(t, r.Token, info.Token)
	require.Zero(t, w.settle(first, functiontest.Event), "done by now")
	require.Zero(t, w.settle(w.environment(), functiontest.Event), "for another environment too")

	requireFree(t, w.fake)
	for _, ses := range w.fake.Sessions() {
		w.fake.DestroySession(ses.ID)
	}
	w.server.CloseClientConnections()
	thawed := w.settle(first, `{"occurrence":"2026-03-02T00:06:00Z"}`)
	require.Equal(t, 30, thawed.Count)
	require.Greater(t, thawed.Token, r.Token)
	require.Len(t, w.fake.Sessions(), 1)
	require.Equal(t, 1, first.Starts())
	requireFree(t, w.fake)
}

// TestBinaryIsNotRun: without a Consul the invocation fails, and what was logged says why and tells no token.
func TestBinaryIsNotRun(t *testing.T) {
	w := newBinary(t)
	w.server.Close()
	f := w.environment()
	res, err := f.Invoke(t.Context(), fakelambda.Invocation{Payload: []byte(functiontest.Event)})
	require.NoError(t, err)
	require.NotEmpty(t, res.ErrorType, "the platform tries again")
	require.Contains(t, string(res.ErrorBody), "check the agent's address")
	line, err := f.WaitLine(t.Context(), `"singleton delivery"`)
	require.NoError(t, err)
	require.Contains(t, line, `"outcome":"not-run"`)
	require.Contains(t, line, "check the agent's address")

	f = w.environment("CONSUL_HTTP_ADDR=https://me:" + secret + "@consul.internal")
	res, err = f.Invoke(t.Context(), fakelambda.Invocation{Payload: []byte(functiontest.Event)})
	require.NoError(t, err)
	require.NotEmpty(t, res.ErrorType)
	line, err = f.WaitLine(t.Context(), "the function cannot start")
	require.NoError(t, err)
	require.Contains(t, line, "CONSUL_HTTP_ADDR")
}

// binary is the function's, beside a Consul with 30 payments.
type binary struct {
	t         *testing.T
	bootstrap string
	fake      *consulfake.Server
	server    *httptest.Server
	locks     *consullock.Store
}

func newBinary(t *testing.T) *binary {
	t.Helper()
	w := &binary{t: t, bootstrap: filepath.Join(t.TempDir(), "bootstrap"), fake: fake()}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "lambda.norpc", "-o", w.bootstrap, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	w.fake.Put("payments/2026-03-01", day())
	w.server = httptest.NewServer(w.fake)
	t.Cleanup(func() {
		w.server.Close()
		w.fake.Close()
	})
	w.locks, err = consullock.New(service{w.server.URL, "", secret}.config(), nil)
	require.NoError(t, err)
	return w
}

// environment is one of Lambda's, which freezes the process between invocations. Nothing that it prints is secret.
func (w *binary) environment(env ...string) *fakelambda.Env {
	w.t.Helper()
	all := []string{}
	for name, value := range complete {
		all = append(all, name+"="+value)
	}
	f, err := fakelambda.New(fakelambda.Options{
		Bootstrap: w.bootstrap, Env: append(append(all, "CONSUL_HTTP_ADDR="+w.server.URL), env...),
		Timeout: time.Minute, InitTimeout: time.Minute, Freeze: true,
	})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		f.Close()
		require.NotContains(w.t, strings.Join(f.Lines(), "\n"), secret)
	})
	return f
}

// lock is the job's lock as Consul has it.
func (w *binary) lock() lease.Info {
	info, err := w.locks.Inspect(w.t.Context(), "settlement")
	if err != nil {
		w.t.Error(err)
	}
	return info
}

func (w *binary) settle(f *fakelambda.Env, event string) (r settlement.Report) {
	w.t.Helper()
	res, err := f.Invoke(w.t.Context(), fakelambda.Invocation{Payload: []byte(event)})
	require.NoError(w.t, err)
	require.Empty(w.t, res.ErrorType, string(res.ErrorBody))
	require.NoError(w.t, json.Unmarshal(res.Body, &r))
	return r
}
