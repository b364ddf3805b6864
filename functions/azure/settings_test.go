package main

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/functions/internal/environ"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// capture keeps what is logged until the test's end.
func capture(t *testing.T) *bytes.Buffer {
	t.Helper()
	logs, before := &bytes.Buffer{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(logs, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return logs
}

func settings(env map[string]string) *environ.Reader {
	return environ.New(func(name string) string { return env[name] })
}

// The limit is the host's own: that of its file, or of the setting that overrides it.
func TestLimit(t *testing.T) {
	dir := t.TempDir()
	app := map[string]string{"FUNCTIONS_APP_ROOT_PATH": dir}
	for _, c := range []struct {
		host, setting string
		want          time.Duration
		says          string
	}{
		{`{"functionTimeout": "00:10:00"}`, "", 10 * time.Minute, ""},
		{`{"functionTimeout": "1.02:03:04"}`, "", 26*time.Hour + 3*time.Minute + 4*time.Second, ""},
		{`{"functionTimeout": "00:10:00"}`, "00:00:30", 30 * time.Second, ""},
		{`{`, "00:00:30", 30 * time.Second, ""},
		{`{`, "", 0, "host.json"},
		{`{}`, "", 0, "functionTimeout"},
		{`{"functionTimeout": "-1"}`, "", 0, "for ever"},
		{`{"functionTimeout": "00:00:02"}`, "", 0, "3s or more"},
		{`{"functionTimeout": "5m"}`, "", 0, "00:05:00"},
		{`{}`, "soon", 0, timeoutSetting},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "host.json"), []byte(c.host), 0o600))
		env := maps.Clone(app)
		env[timeoutSetting] = c.setting
		r := settings(env)
		limit := limitOf(r)
		if c.says != "" {
			require.ErrorContains(t, r.Err(), c.says, c)
			continue
		}
		require.NoError(t, r.Err())
		require.Equal(t, c.want, limit)
	}
	r := settings(map[string]string{"FUNCTIONS_APP_ROOT_PATH": "nowhere"})
	limitOf(r)
	require.ErrorContains(t, r.Err(), filepath.Join("nowhere", "host.json"))
}

func TestReserve(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{
		minLimit: time.Second, 30 * time.Second: 3 * time.Second, 5 * time.Minute: 10 * time.Second, time.Hour: 10 * time.Second,
	} {
		require.Equal(t, want, reserveOf(limit))
	}
}

// A run has what its invocation has, less the reserve; a delivery waits for half of that.
func TestHandlerLeavesTheReserve(t *testing.T) {
	h, err := newHandler(func(name string) string {
		return map[string]string{
			"LEASE_CONTAINER": "locks", "PAYMENTS_CONTAINER": "payments", "RESULTS_CONTAINER": "results",
			"AZURE_STORAGE_CONNECTION_STRING": emulator.AzuriteConnection("http://127.0.0.1:1/devstoreaccount1"),
		}[name]
	})
	require.NoError(t, err)
	require.Equal(t, 290*time.Second, h.left, "by the host.json beside it")
	require.Equal(t, 145*time.Second, h.job.Options().Wait)
}

func TestZone(t *testing.T) {
	require.Equal(t, "UTC", zoneOf(settings(nil)))
	require.Equal(t, "Asia/Kolkata", zoneOf(settings(map[string]string{"TZ": "Asia/Kolkata"})))
	require.Equal(t, "Europe/Berlin", zoneOf(settings(map[string]string{"TZ": "Asia/Kolkata", "WEBSITE_TIME_ZONE": "Europe/Berlin"})))
}
