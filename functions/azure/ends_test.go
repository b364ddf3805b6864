package main

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

// short is the least limit of an invocation: a run has two seconds, and a delivery waits for one.
const short = timeoutSetting + "=00:00:03"

// killed is the lock of a run whose process was killed in its middle. The host, which has no answer, counts a failure.
func killed(w *world, env ...string) lease.Info {
	w.t.Helper()
	i := w.start(append([]string{"SETTLEMENT_PACE=1h"}, env...)...)
	done := i.begin(timer(due))
	held := w.running()
	require.NoError(w.t, i.cmd.Process.Kill())
	require.Zero(w.t, (<-done).status)
	require.Equal(w.t, lease.Held, w.lock().State)
	return held
}

// TestSF10_TheRetryComesBeforeTheDeadRunsLeaseHasEnded: it is told to come again, never that all is done.
func TestSF10_TheRetryComesBeforeTheDeadRunsLeaseHasEnded(t *testing.T) {
	w := newWorld(t)
	held := killed(w)
	i := w.start(short)
	a := i.invoke(timer(due))
	require.Equal(t, http.StatusConflict, a.status)
	require.Equal(t, "running", a.outcome())
	w.unlock(held)
	for _, want := range []string{"ran", "already-done"} {
		a = i.invoke(timer(due))
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, want, a.outcome())
	}
	require.Greater(t, w.lock().Token, held.Token)
}

// TestSF04b_AtMostOnce: a killed run is in doubt, a failed one has failed; neither is run again, and the host is told.
func TestSF04b_AtMostOnce(t *testing.T) {
	w := newWorld(t)
	const once = "LEASE_POLICY=at-most-once"
	w.unlock(killed(w, once))
	i := w.start(once)
	late := timer("2026-03-03T00:05:00Z")
	for range 2 {
		a := i.invoke(timer(due))
		require.Equal(t, http.StatusPreconditionFailed, a.status)
		require.Equal(t, "in-doubt", a.outcome())
		i.says("Clear") // what an operator does
	}
	require.Equal(t, http.StatusInternalServerError, i.invoke(late).status, "there is no blob of that day")
	w.pay("2026-03-02", 1)
	a := i.invoke(late)
	require.Equal(t, http.StatusPreconditionFailed, a.status)
	require.Equal(t, "failed-before", a.outcome())
}

// TestSF05a_StopSignal: the run's context ends, the lock is free before the process ends, and the occurrence is not lost.
func TestSF05a_StopSignal(t *testing.T) {
	w := newWorld(t)
	i := w.start("SETTLEMENT_PACE=1h")
	done := i.begin(timer(due))
	w.running()
	require.NoError(t, i.cmd.Process.Signal(syscall.SIGTERM))
	a := <-done
	require.Equal(t, http.StatusInternalServerError, a.status)
	require.Equal(t, "failed", a.outcome())
	require.NoError(t, i.wait())
	require.Equal(t, lease.Free, w.lock().State)
	require.Equal(t, "ran", w.start().invoke(timer(due)).outcome())
}

// An instance that does nothing ends at once.
func TestStopSignalWhileIdle(t *testing.T) {
	w := newWorld(t)
	i := w.start()
	require.NoError(t, i.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, i.wait())
	require.Empty(t, i.logged())
}

// TestSF05e_FunctionTimeout: the run ends before the host gives up, releases, and says so.
func TestSF05e_FunctionTimeout(t *testing.T) {
	w := newWorld(t)
	i := w.start(short, "SETTLEMENT_PACE=1h")
	a := i.invoke(timer(due))
	require.Equal(t, http.StatusInternalServerError, a.status)
	require.Equal(t, "failed", a.outcome())
	i.says("functionTimeout is near")
	require.Equal(t, lease.Free, w.lock().State)
}

// A host that hangs up has counted a failure: the run ends, and the lock is free for the retry.
func TestTheHostHangsUp(t *testing.T) {
	w := newWorld(t)
	i := w.start("SETTLEMENT_PACE=1h")
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url+function, strings.NewReader(invocation(timer(due))))
	require.NoError(t, err)
	gone := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		gone <- err
	}()
	w.running()
	hangUp()
	require.ErrorIs(t, <-gone, context.Canceled)
	require.Eventually(t, func() bool {
		info, err := w.locks.Inspect(t.Context(), "settlement")
		return err == nil && info.State == lease.Free
	}, soon, 10*time.Millisecond)
	require.Equal(t, "ran", w.start().invoke(timer(due)).outcome())
}

// A handler that cannot start says why and ends, so that the host says so too.
func TestCannotStart(t *testing.T) {
	err := serve(t.Context(), func(string) string { return "" })
	require.ErrorContains(t, err, "FUNCTIONS_CUSTOMHANDLER_PORT")
	err = serve(t.Context(), func(name string) string { return map[string]string{"FUNCTIONS_CUSTOMHANDLER_PORT": "1"}[name] })
	for _, name := range []string{"LEASE_CONTAINER", "AZURE_STORAGE_SERVICE_URL"} {
		require.ErrorContains(t, err, name)
	}
}

// TestInRealTime: the retry after a kill waits for the end of the dead run's lease and takes over, without anybody's help.
func TestInRealTime(t *testing.T) {
	w := newWorld(t)
	held := killed(w)
	a := w.start().invoke(timer(due))
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "ran", a.outcome())
	require.Greater(t, w.lock().Token, held.Token)
}
