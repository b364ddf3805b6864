//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// TestOnlyHere: tables are deleted, so nothing but a stand-in on this machine will do.
func TestOnlyHere(t *testing.T) {
	for endpoint, says := range map[string]string{
		"": "make up", "https://dynamodb.eu-west-1.amazonaws.com": "not on this machine", "http://10.0.0.1:4566": "not on this machine",
	} {
		err := run(t.Context(), nil, func(string) string { return endpoint }, t.Output())
		require.ErrorContains(t, err, says, endpoint)
	}
	for _, args := range [][]string{{"-occurrences", "0"}, {"-occurrences", "301"}, {"more"}} {
		require.Error(t, run(t.Context(), args, func(string) string { return "http://127.0.0.1:1" }, t.Output()), args)
	}
}

// TestCloud plays it all on a stand-in of its own.
func TestCloud(t *testing.T) {
	tests := map[string]func(*testing.T){}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		tests["two occurrences, one of them killed, and the template's own"] = plays
		tests["a stand-in that is killed takes its functions along"] = diesWithItsFunctions
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

func plays(t *testing.T) {
	engine, err := emulator.StartMinistack(t.Context(), emulator.MinistackOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	var out strings.Builder
	args := []string{"-occurrences", "2", "-template", "../../template.yaml"}
	err = run(t.Context(), args, func(string) string { return engine.URL }, &out)
	require.NoError(t, err, out.String())
	t.Log("\n" + out.String())
	require.Contains(t, out.String(), "killed in the middle")
}

func diesWithItsFunctions(t *testing.T) {
	engine, err := emulator.StartMinistack(t.Context(), emulator.MinistackOptions{})
	require.NoError(t, err)
	c, err := connect(engine.URL)
	require.NoError(t, err)
	text, err := c.pack(t.Context(), "../../template.yaml", t.TempDir(), "dynamolock")
	require.NoError(t, err)
	s := &stack{cloud: c, name: "dies-" + strings.ToLower(rand.Text()[:6]), template: text}
	require.NoError(t, s.deploy(t.Context(), with(parameters, map[string]string{"LeaseTTL": "60s", "TimeoutSeconds": "300"})))
	at := time.Date(2026, time.March, 2, 0, 5, 0, 0, time.UTC)
	_, err = s.pay(t.Context(), dayBefore(at), manyPayments)
	require.NoError(t, err)
	require.NoError(t, s.set(t.Context(), map[string]string{"SETTLEMENT_PACE": "1m"}))
	require.NoError(t, s.schedule(t.Context(), at, 1))
	require.NoError(t, until(t.Context(), "the function runs", func(ctx context.Context) (bool, error) {
		l, err := s.lock(ctx)
		return l.State == lease.Held, err
	}))
	pids, err := s.processes()
	require.NoError(t, err)
	require.Len(t, pids, 1)

	require.NoError(t, engine.Close(), "which is SIGKILL")
	require.Eventually(t, func() bool {
		pids, err := s.processes()
		return err == nil && len(pids) == 0
	}, 10*time.Second, 10*time.Millisecond, "it would have lived until it had something to say, at its first renewal")
}
