package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// TestSF01_DeliveredAgain speaks the host's protocol to the real binary: once per occurrence, whichever instance it reaches.
func TestSF01_DeliveredAgain(t *testing.T) {
	w := newWorld(t)
	first, second := w.start(), w.start("LEASE_TTL=30s")
	a := first.invoke(timer(due))
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "ran", a.outcome())
	require.Contains(t, a.logs(), "occurrence 2026-03-02T00:05:00Z")
	var r settlement.Report
	require.NoError(t, json.Unmarshal(a.ReturnValue, &r))
	require.NotZero(t, r.Token)
	require.Equal(t, settlement.Report{
		Day: "2026-03-01", Count: 3, TotalCents: 300, Currency: "EUR", Occurrence: "2026-03-02T00:05:00Z", Token: r.Token,
	}, r)
	for _, i := range []*instance{first, second, w.start()} {
		a = i.invoke(timer(due))
		require.Equal(t, http.StatusOK, a.status, "a success, or the host delivers again")
		require.JSONEq(t, `"already-done"`, string(a.ReturnValue))
	}
	guard, err := bloblease.NewGuard(w.container("results"), nil)
	require.NoError(t, err)
	have, err := guard.Get(t.Context(), settlement.Key("2026-03-01"))
	require.NoError(t, err)
	require.Equal(t, r.Token, have.Token)

	w.pay("2026-03-02", 1)
	next := timer("2026-03-03T00:05:00+00:00")
	var waiting []<-chan answered
	for _, i := range []*instance{first, first, first, second, second} { // at the same instant
		waiting = append(waiting, i.begin(next))
	}
	outcomes := map[string]int{}
	for _, done := range waiting {
		a := <-done
		require.Equal(t, http.StatusOK, a.status, a.logs())
		outcomes[a.outcome()]++
	}
	require.Equal(t, map[string]int{"ran": 1, "already-done": 4}, outcomes, "a copy waits for the run's end")
}

// TestSF02_EarlyPastDueAndTwice: the occurrence is the one that the monitor had stored, whenever the host invokes.
func TestSF02_EarlyPastDueAndTwice(t *testing.T) {
	w := newWorld(t)
	i := w.start("TZ=Asia/Kolkata")
	require.Equal(t, "ran", i.invoke(timer(due)).outcome())
	restarted := w.start("WEBSITE_TIME_ZONE=America/New_York", "TZ=Asia/Kolkata")
	for _, again := range []string{
		`{"ScheduleStatus":{"Next":"` + due + `"},"IsPastDue":true}`, quote(quote(timer(due))), timer("2026-03-01T19:05:00"),
		timer("2026-03-01T19:05:00-05:00"),
	} {
		a := restarted.invoke(again)
		require.Equal(t, "already-done", a.outcome(), "%s: %s", again, a.logs())
	}
	a := i.invoke(timer("2026-03-02T05:35:00"))
	require.Equal(t, "already-done", a.outcome(), "in the zone of TZ, %s", a.logs())
	require.Equal(t, "stale", w.start().invoke(timer("2026-03-01T00:05:00Z")).outcome(), "an older one is over")
}

// Whatever else is posted is refused, with a reason in the log, and never runs anything.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	i := w.start("ZONEINFO=/nowhere", "WEBSITE_TIME_ZONE=Eastern Standard Time")
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format(time.RFC3339) // as in a manual invocation
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{http.MethodPost, function, invocation(timer(tomorrow)), http.StatusBadRequest, "ahead of the service's clock"},
		{http.MethodPost, function, invocation(`{"ScheduleStatus":null}`), http.StatusBadRequest, "useMonitor"},
		{http.MethodPost, function, invocation(timer("2026-03-02T00:05:00")), http.StatusBadRequest, "Eastern Standard Time"},
		{http.MethodPost, function, ``, http.StatusBadRequest, "no invocation"},
		{http.MethodPost, function, `{"Data":{"timer":"` + strings.Repeat("x", 300<<10), http.StatusRequestEntityTooLarge, "too large"},
		{http.MethodPost, "other", invocation(timer(due)), http.StatusNotFound, ""},
		{http.MethodPost, "Settlement", invocation(timer(due)), http.StatusNotFound, ""},
		{http.MethodPost, "", invocation(timer(due)), http.StatusMethodNotAllowed, ""},
		{http.MethodGet, function, ``, http.StatusMethodNotAllowed, ""},
		{http.MethodPut, function, invocation(timer(due)), http.StatusMethodNotAllowed, ""},
	} {
		var out any
		var a answered
		if c.says != "" {
			out = &a
		}
		status, err := i.send(c.method, c.path, strings.NewReader(c.body), out)
		require.NoError(t, err)
		require.Equal(t, c.status, status, c)
		require.Contains(t, a.logs(), c.says)
		i.says(c.says)
		if c.says != "" {
			require.Equal(t, "not-run", a.outcome())
		}
	}
	i.says(`"invocation":"9d1f1c3e"`)
	require.Equal(t, lease.Absent, w.lock().State, "nothing was written")
	require.Equal(t, http.StatusOK, i.invoke(timer(due)).status, "none of it stands in the way")
}

// TestSF04c_FailedRunsAreRetried: by the host, which knows the failure by the status.
func TestSF04c_FailedRunsAreRetried(t *testing.T) {
	w := newWorld(t)
	i := w.start()
	late := timer("2026-03-03T00:05:00Z")
	for range 2 {
		a := i.invoke(late)
		require.Equal(t, http.StatusInternalServerError, a.status)
		require.Equal(t, "failed", a.outcome())
		i.says("2026-03-02.jsonl is not there") // the host shows nothing of the body
		require.Equal(t, lease.Free, w.lock().State)
	}
	w.pay("2026-03-02", 1)
	require.Equal(t, "ran", i.invoke(late).outcome())
}

// TestSF03_AnotherOccurrenceRuns: it is skipped, and not reported as done.
func TestSF03_AnotherOccurrenceRuns(t *testing.T) {
	w := newWorld(t)
	slow := w.start("SETTLEMENT_PACE=1h")
	done := slow.begin(timer(due))
	held := w.running()
	for _, i := range []*instance{slow, w.start()} {
		a := i.invoke(timer("2026-03-03T00:05:00Z"))
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, "busy", a.outcome())
	}
	require.Equal(t, held.Token, w.lock().Token)
	require.NoError(t, slow.cmd.Process.Signal(syscall.SIGTERM))
	<-done
}

// TestNoStorage: nothing ran, and the host tries again.
func TestNoStorage(t *testing.T) {
	w := newWorld(t)
	i := w.start()
	require.NoError(t, w.engine.Close())
	a := i.invoke(timer(due))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "not-run", a.outcome())
	i.says("connection refused")
}

// TestLost: an operator takes the lock away in mid-run; the run learns it at its next renewal.
func TestLost(t *testing.T) {
	w := newWorld(t)
	i := w.start("SETTLEMENT_PACE=1h")
	done := i.begin(timer(due))
	w.unlock(w.running())
	a := <-done
	require.Equal(t, http.StatusInternalServerError, a.status)
	require.Equal(t, "lost", a.outcome())
	require.Equal(t, "ran", w.start().invoke(timer(due)).outcome())
}

// Every outcome has a status, and only those that need no other delivery are successes.
func TestStatuses(t *testing.T) {
	for outcome, want := range map[singleton.Outcome]int{
		singleton.Running: 409, singleton.Busy: 409, singleton.Failed: 500, singleton.Refused: 500, singleton.Lost: 500,
		singleton.InDoubt: 412, singleton.FailedBefore: 412, singleton.NotRun: 503,
	} {
		require.Equal(t, want, statusOf(outcome, lease.ErrUnavailable), outcome)
	}
	require.Equal(t, 400, statusOf(singleton.NotRun, lease.ErrInvalid))
	for _, outcome := range []singleton.Outcome{singleton.Ran, singleton.AlreadyDone, singleton.Stale, singleton.Busy, singleton.Paused} {
		require.Equal(t, 200, statusOf(outcome, nil))
	}
}

// TestApp: the files of the function app name what the code needs.
func TestApp(t *testing.T) {
	var host struct {
		Version         string
		FunctionTimeout string
		CustomHandler   struct {
			Description                 struct{ DefaultExecutablePath string }
			EnableForwardingHTTPRequest bool `json:"enableForwardingHttpRequest"`
		}
	}
	read(t, "host.json", &host)
	require.Equal(t, "2.0", host.Version)
	require.Equal(t, "azure", host.CustomHandler.Description.DefaultExecutablePath)
	require.False(t, host.CustomHandler.EnableForwardingHTTPRequest, "an invocation would come without its data")
	limit, ok := timeSpan(host.FunctionTimeout)
	require.True(t, ok)
	require.LessOrEqual(t, limit, 10*time.Minute, "the most that a consumption plan allows")
	var f struct {
		Bindings []struct {
			Name, Type, Schedule     string
			UseMonitor, RunOnStartup bool
		}
		Retry struct {
			Strategy      string
			MaxRetryCount int
		}
	}
	read(t, filepath.Join(function, "function.json"), &f)
	require.Len(t, f.Bindings, 1)
	require.Equal(t, "timer", f.Bindings[0].Name)
	require.Equal(t, "timerTrigger", f.Bindings[0].Type)
	require.True(t, f.Bindings[0].UseMonitor, "the schedule is known by it")
	require.False(t, f.Bindings[0].RunOnStartup, "it is no occurrence of the schedule")
	require.Positive(t, f.Retry.MaxRetryCount, "a failure is delivered again")
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, into))
}
