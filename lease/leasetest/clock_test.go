package leasetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease/leasetest"
)

func TestClock(t *testing.T) {
	const hour, gain = time.Hour, 3600 * time.Millisecond
	for name, c := range map[string]struct {
		do         func(*leasetest.Clock)
		mono, wall time.Duration // that pass on it in an hour
	}{
		"right":            {func(*leasetest.Clock) {}, hour, hour},
		"stepped forward":  {func(c *leasetest.Clock) { c.StepWall(hour) }, hour, 2 * hour},
		"stepped back":     {func(c *leasetest.Clock) { c.StepWall(-hour) }, hour, 0},
		"monotonic frozen": {func(c *leasetest.Clock) { c.FreezeMono(true) }, 0, hour},
		"wall frozen":      {func(c *leasetest.Clock) { c.FreezeWall(true) }, hour, 0},
		"thawed":           {func(c *leasetest.Clock) { c.FreezeWall(true); c.FreezeWall(false) }, hour, hour},
		"fast":             {func(c *leasetest.Clock) { c.Drift(1000) }, hour + gain, hour + gain},
		"slow":             {func(c *leasetest.Clock) { c.Drift(-1000) }, hour - gain, hour - gain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := leasetest.NewClock()
				before := clock.Now()
				require.True(t, before.Wall.Equal(time.Now()))
				c.do(clock)
				time.Sleep(hour)
				now := clock.Now()
				require.InDelta(t, c.mono, now.Mono-before.Mono, float64(time.Microsecond))
				require.InDelta(t, c.wall, now.Wall.Sub(before.Wall), float64(time.Microsecond))
			})
		})
	}
}
