package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestReadings(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	from := lease.Reading{Mono: time.Minute, Wall: at}
	for _, c := range []struct{ mono, wall, fast, slow time.Duration }{
		{time.Second, time.Second, time.Second, time.Second},
		{0, time.Hour, time.Hour, 0},                       // suspended
		{time.Second, -time.Hour, time.Second, -time.Hour}, // set back
		{time.Second, time.Hour, time.Hour, time.Second},   // set forward
		{-time.Second, -time.Minute, -time.Second, -time.Minute},
	} {
		to := lease.Reading{Mono: from.Mono + c.mono, Wall: at.Add(c.wall)}
		require.Equal(t, c.fast, to.Fast(from))
		require.Equal(t, c.slow, to.Slow(from))
	}
	require.True(t, lease.Reading{}.IsZero())
	require.False(t, from.IsZero())
}

func TestSystemClock(t *testing.T) {
	before := time.Now()
	r := lease.SystemClock()
	require.WithinDuration(t, before, r.Wall, time.Second)
	require.NotContains(t, r.Wall.String(), "m=", "the wall reading has a monotonic part, which would hide a step")
	require.GreaterOrEqual(t, lease.SystemClock().Mono, r.Mono)
	require.False(t, r.IsZero())
}

// unclocked is a store that was given no clock.
type unclocked struct{ lease.Store }

func (unclocked) Clock() lease.Clock { return nil }

func TestClientTakesTheStoresClock(t *testing.T) {
	want := lease.Reading{Mono: 42}
	s := memlease.NewService().Store(&memlease.Options{Clock: func() lease.Reading { return want }})
	c, err := lease.New(s, nil)
	require.NoError(t, err)
	require.Equal(t, want, c.Clock()())
	c, err = lease.New(unclocked{s}, nil)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), c.Clock()().Wall, time.Minute)
}
