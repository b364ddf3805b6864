//go:build linux

package main_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// stores make a world on every kind of store, with nothing in it.
func stores() map[string]func(*testing.T) *world {
	all := map[string]func(*testing.T) *world{
		"dynamodb": func(t *testing.T) *world { return newEmptyWorld(t) },
		"azblob": func(t *testing.T) *world {
			e, err := emulator.Serve(blobfake.New())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, e.Close()) })
			return azureWorld(t, e.URL+"/"+emulator.AzuriteAccount)
		},
		"consul": func(t *testing.T) *world {
			e, err := emulator.Serve(agent{consulfake.New(nil)})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, e.Close()) })
			return otherWorld(t, "consul://"+strings.TrimPrefix(e.URL, "http://")+"/team/locks")
		},
	}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		all["azurite"] = func(t *testing.T) *world {
			e, err := azurite()
			require.NoError(t, err)
			return azureWorld(t, e.URL)
		}
		all["agent"] = func(t *testing.T) *world {
			e, err := emulator.StartConsul(t.Context(), emulator.ConsulOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, e.Close()) })
			return otherWorld(t, "consul://"+strings.TrimPrefix(e.URL, "http://")+"/team/locks")
		}
	}
	return all
}

// agent adds to the fake what only doctor asks for.
type agent struct{ http.Handler }

func (a agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/status/leader":
		_, _ = io.WriteString(w, `"127.0.0.1:8300"`)
	case "/v1/acl/token/self":
		http.Error(w, "ACL support disabled", http.StatusUnauthorized)
	default:
		a.Handler.ServeHTTP(w, r)
	}
}

func azureWorld(t *testing.T, endpoint string) *world {
	t.Helper()
	w := otherWorld(t, "azblob://"+emulator.AzuriteAccount+"/locks?endpoint="+url.QueryEscape(endpoint))
	w.env = append(w.env, "AZURE_STORAGE_KEY="+emulator.AzuriteKey)
	return w
}

func otherWorld(t *testing.T, store string) *world {
	t.Helper()
	return &world{t: t, url: store, env: []string{
		"CLOUDLEASE_STORE=" + store, "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "USER=operator", "TERM=dumb",
	}}
}

// azurite is the one Azurite of all tests.
var azurite = sync.OnceValues(func() (*emulator.Engine, error) {
	return emulator.StartAzurite(context.Background(), emulator.AzuriteOptions{})
})

// closeEngines ends what tests have shared.
func closeEngines() {
	if os.Getenv(emulator.EnginesVariable) == "1" {
		if e, err := azurite(); err == nil {
			_ = e.Close()
		}
	}
}

// TestEveryCommandOnEveryStore is an operator's day.
func TestEveryCommandOnEveryStore(t *testing.T) {
	t.Parallel()
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, j := open(t), newJournal(t)
			require.NotEmpty(t, w.ok("init"))
			require.NotEmpty(t, w.ok("init"), "again")
			require.NotEmpty(t, w.ok("init", "--print", "policy"))
			w.healthy()

			require.Equal(t, "absent", w.status("job").State)
			require.Equal(t, "free", w.holderLife(j))
			w.breaks(j)

			before := w.status("spare").Token
			w.ok("run", "spare", "--", "true")
			high := w.status("spare").Token
			require.Greater(t, high, before)
			w.ok("floor", "spare", itoa(int(high)+1000)) //nolint:gosec // small enough
			w.ok("run", "spare", "--", "true")
			require.Greater(t, w.status("spare").Token, high+1000)

			w.jobs()
			require.Contains(t, w.ok("list"), "spare")
			require.NotContains(t, w.ok("list", "jo"), "spare")
		})
	}
}

// healthy wants doctor to find no fault.
func (w *world) healthy() {
	w.t.Helper()
	d := w.doctor()
	require.True(w.t, d.OK, "%+v", d)
	for _, i := range d.Items {
		require.NotEqual(w.t, "fail", i.Status, "%+v", i)
		require.NotEqual(w.t, "warn", i.Status, "%+v", i)
		require.Equal(w.t, i.Status == "ok", i.Fix == "", "%+v", i)
	}
}

type diagnosis struct {
	Store string
	OK    bool
	Items []struct{ Check, Status, Found, Fix string }
}

func (w *world) doctor() (d diagnosis) {
	w.t.Helper()
	r := w.cli("doctor", "-o", "json")
	require.NoError(w.t, json.Unmarshal([]byte(r.out), &d), r.err)
	require.Equal(w.t, d.OK, r.code == 0)
	return d
}

// holderLife runs a command and looks at its lock meanwhile; it returns the lock's last state.
func (w *world) holderLife(j *journal) string {
	w.t.Helper()
	run := w.start(append([]string{"run", "job", "--"}, j.worker()...)...)
	begun := j.find("begin", 1)
	s := w.status("job")
	require.Equal(w.t, "held", s.State)
	require.Contains(w.t, begun.text, itoa(int(s.Token))) //nolint:gosec // small enough
	require.NotEmpty(w.t, s.Holder)
	r := w.cli("run", "job", "--", "true")
	require.Equal(w.t, 191, r.code, r.err)
	require.Contains(w.t, r.err, "cloudlease break job --token "+itoa(int(s.Token))) //nolint:gosec // small enough
	run.signal(15)
	require.Zero(w.t, run.end(), run.errs)
	return w.status("job").State
}

// breaks takes a lock away from a run.
func (w *world) breaks(j *journal) {
	w.t.Helper()
	run := w.start(append([]string{"run", "broken", "--ttl", "15s", "--"}, j.worker("ignore")...)...)
	pid := j.pid(2)
	s := w.status("broken")
	w.ok("break", "broken", "--token", itoa(int(s.Token)), "--why", "a test", "--yes") //nolint:gosec // small enough
	require.Equal(w.t, 193, run.end(), run.errs)
	require.False(w.t, alive(pid))
	after := w.status("broken")
	require.Equal(w.t, "free", after.State)
	require.NotNil(w.t, after.Broken)
	require.Equal(w.t, s.Token, after.Broken.Token)
	require.Equal(w.t, "a test", after.Broken.Why)
	require.Contains(w.t, after.Broken.By, "operator@")
	require.WithinDuration(w.t, time.Now(), parse(w.t, after.Broken.At), time.Minute)
	w.ok("run", "broken", "--", "true")
	require.Greater(w.t, w.status("broken").Token, s.Token)
}

func parse(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

// jobs runs, fails, pauses, resumes and clears occurrences.
func (w *world) jobs() {
	w.t.Helper()
	const first, second, third = "2026-03-02T06:00:00Z", "2026-03-02T07:00:00Z", "2026-03-02T08:00:00Z"
	deliver := func(at string, argv ...string) result {
		return w.cli(append([]string{"run", "job/x", "--occurrence", at, "--"}, argv...)...)
	}
	require.Equal(w.t, "1", deliver(first, "sh", "-c", "printf 1").out)
	require.Contains(w.t, deliver(first, "sh", "-c", "printf again").err, "already-done, skipped")
	require.Equal(w.t, 5, deliver(second, "sh", "-c", "exit 5").code)
	require.Zero(w.t, deliver(second, "true").code)
	require.Contains(w.t, w.ok("pause", "job/x", "--why", "month's end: 100 %"), "paused job/x")
	r := deliver(third, "echo", "never")
	require.Zero(w.t, r.code, r.err)
	require.Empty(w.t, r.out)
	require.Contains(w.t, r.err, "is paused")
	require.Empty(w.t, w.ok("run", "job/x", "--", "echo", "never"), "a plain run is held off as well")
	h := w.history("job/x")
	require.Equal(w.t, "month's end: 100 %", h.Paused.Why)
	require.Contains(w.t, h.Paused.By, "operator@")
	require.Equal(w.t, second, h.Finished)
	require.Contains(w.t, w.ok("resume", "job/x"), "resumed")
	require.Equal(w.t, 1, w.cli("resume", "job/x").code)
	require.Contains(w.t, deliver(second, "echo", "again").err, "already-done")
	require.Equal(w.t, "3\n", deliver(third, "echo", "3").out)
	require.Contains(w.t, w.ok("clear", "job/x", third), "it runs once more")
	require.Equal(w.t, "3\n", deliver(third, "echo", "3").out)
	h = w.history("job/x")
	require.Nil(w.t, h.Paused)
	require.Equal(w.t, third, h.Finished)
	var outcomes []string
	for _, e := range h.Runs {
		outcomes = append(outcomes, e.Outcome)
	}
	require.Equal(w.t, []string{"ran", "cleared", "ran", "resumed", "paused", "ran", "failed", "ran"}, outcomes)
	require.Contains(w.t, w.ok("history", "job/x"), "OUTCOME")
}

type history struct {
	Job               string
	Started, Finished string
	Running           *struct{ Occurrence, Holder, Since, Expires string }
	Paused            *struct{ By, Why, Since string }
	Runs              []struct {
		Occurrence, Outcome, Started string
		Token                        uint64
	}
}

func (w *world) history(job string) (h history) {
	w.t.Helper()
	require.NoError(w.t, json.Unmarshal([]byte(w.ok("history", job, "-o", "json")), &h))
	return h
}
