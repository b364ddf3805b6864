//go:build unix

package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/e2e/fakelambda"
	"github.com/cloudlease/cloudlease/functions/internal/functiontest"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// TestBinary runs the real binary as AWS Lambda does: once per occurrence over several environments, and a run that is asked to
// stop leaves the lock free and the occurrence to the retry.
func TestBinary(t *testing.T) {
	bootstrap := filepath.Join(t.TempDir(), "bootstrap")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "lambda.norpc", "-o", bootstrap, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	e := engines()["fake"](t)
	defer func() { require.NoError(t, e.Close()) }()
	connection := emulator.AzuriteConnection(e.URL)
	seed(t, connection)
	store, err := bloblease.New(client(t, connection, "locks"), nil)
	require.NoError(t, err)
	environment := func(env ...string) *fakelambda.Env {
		for name, value := range complete {
			env = append(env, name+"="+value)
		}
		f, err := fakelambda.New(fakelambda.Options{
			Bootstrap: bootstrap, Env: append(env, "AZURE_STORAGE_CONNECTION_STRING="+connection), Timeout: time.Minute, InitTimeout: time.Minute,
			Freeze: true,
		})
		require.NoError(t, err)
		return f
	}
	event := fakelambda.Invocation{Payload: []byte(functiontest.Event)}

	stopped := environment("SETTLEMENT_PACE=1h")
	done := make(chan fakelambda.Result, 1)
	go func() {
		res, err := stopped.Invoke(t.Context(), event)
		if err != nil {
			res.ErrorType = err.Error()
		}
		done <- res
	}()
	require.Eventually(t, func() bool {
		info, err := store.Inspect(t.Context(), "settlement")
		return err == nil && info.State == lease.Held
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(stopped.Pid(), syscall.SIGTERM)) // Lambda's, without the kill that follows on a busy machine
	require.NotEmpty(t, (<-done).ErrorType, "the platform tries again")
	stopped.Close()
	info, err := store.Inspect(t.Context(), "settlement")
	require.NoError(t, err)
	require.Equal(t, lease.Free, info.State)

	for n, want := range []settlement.Report{{Day: "2026-03-01", Count: 30, Occurrence: "2026-03-02T00:05:00Z"}, {}} {
		f := environment()
		for range 2 - n {
			res, err := f.Invoke(t.Context(), event)
			require.NoError(t, err)
			require.Empty(t, res.ErrorType, string(res.ErrorBody))
			var r settlement.Report
			require.NoError(t, json.Unmarshal(res.Body, &r))
			require.Equal(t, []any{want.Day, want.Count, want.Occurrence}, []any{r.Day, r.Count, r.Occurrence})
			require.Equal(t, want.Count > 0, r.Token > info.Token)
			want = settlement.Report{} // done by now
		}
		f.Close()
	}
}
