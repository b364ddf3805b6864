//go:build unix

package worker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
	"github.com/cloudlease/cloudlease/e2e/torture/worker"
	"github.com/cloudlease/cloudlease/lease"
)

// passed reads the clock until some time has passed by the true clock, and tells how much both of its own have gone on.
func passed(c *worker.Clock) (mono, wall, truly time.Duration) {
	before, from := c.Read()
	var after lease.Reading
	until := from
	for until < from+2*time.Millisecond {
		after, until = c.Read()
	}
	return after.Mono - before.Mono, after.Wall.Sub(before.Wall), until - from
}

func TestClock(t *testing.T) {
	c := worker.NewClock()
	mono, wall, truly := passed(c)
	require.Equal(t, truly, mono)
	require.Equal(t, truly, wall)
	require.WithinDuration(t, time.Now(), c.Now().Wall, time.Minute)

	require.NoError(t, c.Set("mono freeze"))
	mono, wall, truly = passed(c)
	require.Zero(t, mono)
	require.Equal(t, truly, wall)
	require.NoError(t, c.Set("mono run"))

	before := c.Now()
	require.NoError(t, c.Set("wall 1h"))
	require.NoError(t, c.Set("wall -20m"))
	after := c.Now()
	require.InDelta(t, 40*60, after.Wall.Sub(before.Wall).Seconds(), 60)
	require.InDelta(t, 0, (after.Mono - before.Mono).Seconds(), 60)

	require.NoError(t, c.Set("drift -500000"))
	mono, wall, truly = passed(c)
	require.InDelta(t, truly/2, mono, 1000)
	require.InDelta(t, truly/2, wall, 1000)

	for _, nonsense := range []string{"", "wall", "wall x", "mono", "mono stop", "drift x", "hour 1"} {
		require.Error(t, c.Set(nonsense), nonsense)
	}
}

// A reading leads back to the instant at which it was taken, whatever was done to the clock since.
func TestTrueInstants(t *testing.T) {
	c := worker.NewClock()
	r, at := c.Read()
	require.InDelta(t, history.Now().Seconds(), at.Seconds(), 60)
	require.NoError(t, c.Set("wall 1h"))
	got, ok := c.TrueOf(r)
	require.True(t, ok)
	require.Equal(t, at, got)
	_, ok = c.TrueOf(lease.Reading{Mono: 1})
	require.False(t, ok)
	for range 9000 { // until it is forgotten
		passedSince, _ := c.Read()
		for c.Now() == passedSince {
		}
	}
	_, ok = c.TrueOf(r)
	require.False(t, ok, "it remembers for ever")
}
