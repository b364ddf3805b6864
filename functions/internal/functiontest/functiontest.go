// Package functiontest is what the tests of the functions share: the same job, whatever the store.
package functiontest

import (
	"context"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lambdalease"
	"github.com/cloudlease/cloudlease/lease"
)

// Environment is a complete environment of a function.
type Environment map[string]string

// With is the environment with changes.
func (e Environment) With(changes map[string]string) func(string) string {
	env := maps.Clone(e)
	maps.Copy(env, changes)
	return func(name string) string { return env[name] }
}

// Open puts a function together from its environment.
type Open func(getenv func(string) string) (*lambdalease.Handler, error)

// BadEnvironment checks that whatever is wrong, the error names the variable, and that all that are missing are named at once.
// own are the function's own settings with wrong values, empty where they are needed.
func BadEnvironment(t *testing.T, e Environment, open Open, own map[string]string) {
	t.Helper()
	_, err := open(e.With(nil))
	require.NoError(t, err)
	bad := map[string]string{
		"LEASE_JOB": "a\nb", "LEASE_TTL": "soon", "LEASE_POLICY": "once", "SETTLEMENT_PACE": "-1s", "SETTLEMENT_FENCE": "maybe",
	}
	maps.Copy(bad, own)
	for name, value := range bad {
		_, err := open(e.With(map[string]string{name: value}))
		require.ErrorContains(t, err, name)
	}
	_, err = open(e.With(map[string]string{"LEASE_TTL": "1ms"}))
	require.ErrorContains(t, err, "LEASE_TTL", "too short for the store")
	_, err = open(func(string) string { return "" })
	for name, value := range own {
		if value == "" {
			require.ErrorContains(t, err, name)
		}
	}
}

// Event is a rule's event for five past midnight on 2 March 2026, which settles the day before.
const Event = `{"source":"aws.events","detail-type":"Scheduled Event","time":"2026-03-02T00:05:00Z"}`

// Settles runs a function whose payments are 30 on 1 March 2026, of 1 to 30 EUR: once per occurrence, and the result fenced.
func Settles(t *testing.T, h *lambdalease.Handler, results fence.Guard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := h.Invoke(ctx, []byte(Event))
	require.NoError(t, err)
	var r settlement.Report
	require.NoError(t, json.Unmarshal(out, &r))
	require.NotZero(t, r.Token)
	require.Equal(t, settlement.Report{
		Day: "2026-03-01", Count: 30, TotalCents: 30 * 31 / 2 * 100, Currency: "EUR", Occurrence: "2026-03-02T00:05:00Z", Token: r.Token,
	}, r)
	again, err := h.Invoke(ctx, []byte(Event))
	require.NoError(t, err)
	require.JSONEq(t, `{"day":"","count":0,"total_cents":0,"currency":"","occurrence":"","token":0}`, string(again))

	have, err := results.Get(ctx, settlement.Key("2026-03-01"))
	require.NoError(t, err)
	require.Equal(t, r.Token, have.Token)
	require.JSONEq(t, string(out), string(have.Value))
	err = results.Put(ctx, settlement.Key("2026-03-01"), []byte("late"), r.Token-1, "a paused run")
	require.ErrorIs(t, err, lease.ErrStale)
}
