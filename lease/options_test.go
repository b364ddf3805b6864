package lease_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

// limited is a store in memory with other limits.
type limited struct {
	lease.Store
	limits lease.Limits
}

func (s limited) Limits() lease.Limits { return s.limits }

func limits(minTTL, maxTTL, granularity time.Duration) limited {
	return limited{memlease.New(), lease.Limits{Store: "a store", MinTTL: minTTL, MaxTTL: maxTTL, Granularity: granularity}}
}

func TestDefaults(t *testing.T) {
	c, err := lease.New(memlease.New(), nil)
	require.NoError(t, err)
	o := c.Options()
	require.Equal(t, 30*time.Second, o.TTL)
	require.Equal(t, 10*time.Second, o.Heartbeat)
	require.Equal(t, 3*time.Second, o.Margin)
	require.Equal(t, 5*time.Second, o.CallTimeout)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Contains(t, o.Holder, host)
	require.NotNil(t, o.Observer)
	require.True(t, strings.HasPrefix(c.Holder(), o.Holder+":"))

	c, err = lease.New(memlease.New(), &lease.Options{TTL: 2 * time.Second})
	require.NoError(t, err)
	require.Equal(t, time.Second, c.Options().CallTimeout)
}

func TestDefaultTTLIsTheNearestTheStoreAllows(t *testing.T) {
	for _, c := range []struct{ minTTL, maxTTL, want time.Duration }{
		{time.Second, 10 * time.Second, 10 * time.Second},
		{time.Second, time.Hour, 30 * time.Second},
		{40 * time.Second, time.Minute, 40 * time.Second},
	} {
		client, err := lease.New(limits(c.minTTL, c.maxTTL, 0), nil)
		require.NoError(t, err)
		require.Equal(t, c.want, client.Options().TTL)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		o    lease.Options
		want string
	}{
		"TTL too short":        {lease.Options{TTL: time.Second}, "TTL 1s is outside what a store allows: 5s to 1m0s"},
		"TTL too long":         {lease.Options{TTL: 2 * time.Minute}, "TTL 2m0s is outside"},
		"TTL negative":         {lease.Options{TTL: -10 * time.Second}, "TTL -10s is outside"},
		"TTL between steps":    {lease.Options{TTL: 10500 * time.Millisecond}, "TTL 10.5s is not a multiple of 1s"},
		"heartbeat too slow":   {lease.Options{TTL: 10 * time.Second, Heartbeat: 5 * time.Second}, "heartbeat 5s is not below half"},
		"heartbeat negative":   {lease.Options{Heartbeat: -1}, "heartbeat -1ns is not below half"},
		"margin eats the rest": {lease.Options{TTL: 10 * time.Second, Margin: 7 * time.Second}, "leave nothing of the TTL 10s"},
		"margin negative":      {lease.Options{Margin: -1}, "margin -1ns"},
		"call timeout":         {lease.Options{CallTimeout: -1}, "call timeout -1ns is negative"},
		"holder too long":      {lease.Options{Holder: strings.Repeat("h", 201)}, "is not 1 to 200 bytes"},
		"holder with a line":   {lease.Options{Holder: "a\nb"}, "without control characters"},
		"longest hold":         {lease.Options{TTL: 10 * time.Second, MaxHold: 9 * time.Second}, "longest hold 9s is below the TTL"},
		"negative hold":        {lease.Options{MaxHold: -1}, "longest hold -1ns"},
		"progress":             {lease.Options{TTL: 9 * time.Second, Progress: time.Second}, "progress limit 1s is below a third"},
		"negative progress":    {lease.Options{Progress: -1}, "progress limit -1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lease.New(limits(5*time.Second, time.Minute, time.Second), &c.o)
			require.ErrorContains(t, err, c.want)
			requireClass(t, lease.ErrInvalid, err)
		})
	}
	good, err := lease.New(limits(5*time.Second, time.Minute, time.Second), nil)
	require.NoError(t, err)
	_, err = good.With(lease.Options{TTL: time.Hour})
	requireClass(t, lease.ErrInvalid, err)
	_, err = lease.New(nil, nil)
	requireClass(t, lease.ErrInvalid, err)
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	_, err := lease.New(memlease.New(), &lease.Options{
		TTL: 2 * time.Hour, Heartbeat: 90 * time.Minute, Margin: time.Hour, CallTimeout: -time.Second,
		MaxHold: time.Minute, Progress: time.Minute, Holder: "\x00",
	})
	require.Error(t, err)
	for _, want := range []string{"TTL 2h0m0s", "heartbeat 1h30m0s", "margin 1h0m0s", "call timeout", "longest hold", "progress limit", "holder"} {
		require.ErrorContains(t, err, want)
	}
}

func TestWithIsAnotherHolderOfTheSameStore(t *testing.T) {
	w := newWorld(t)
	c := w.client(lease.Options{Holder: "me"})
	d, err := c.With(lease.Options{TTL: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "me", d.Options().Holder)
	require.Equal(t, time.Minute, d.Options().TTL)
	require.NotEqual(t, c.Holder(), d.Holder())
	require.Same(t, w.store, d.Store())
	require.Equal(t, c.Options().Observer, d.Options().Observer)
	l := w.acquire(c, "x")
	_, err = d.TryAcquire(t.Context(), "x")
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, d.Close(t.Context()))
	require.NoError(t, l.Err())
	require.Zero(t, w.store.closed, "only the root closes the store")
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, 1, w.store.closed)
	require.NoError(t, l.Release(t.Context()), "Close has released it")
}
