package servertime_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/servertime"
	"github.com/cloudlease/cloudlease/lease"
)

var (
	noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) // on the service's clock
	boot = time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC)  // on the host's wall clock, which is years behind
)

// at is a reading d after the host's start, with both clocks in step.
func at(d time.Duration) lease.Reading {
	return lease.Reading{Mono: d, Wall: boot.Add(d)}
}

func interval(t *testing.T, c *servertime.Clock, r lease.Reading) [2]time.Time {
	t.Helper()
	earliest, latest, ok := c.Interval(r)
	require.True(t, ok)
	e, ok := c.Earliest(r)
	require.True(t, ok)
	l, ok := c.Latest(r)
	require.True(t, ok)
	require.Equal(t, earliest, e)
	require.Equal(t, latest, l)
	return [2]time.Time{earliest, latest}
}

func TestZeroClockKnowsNothing(t *testing.T) {
	var c servertime.Clock
	_, ok := c.Earliest(at(0))
	require.False(t, ok)
	_, ok = c.Latest(at(0))
	require.False(t, ok)
	require.False(t, c.Known(at(0), time.Hour))
}

func TestOneAnswer(t *testing.T) {
	var c servertime.Clock
	require.False(t, c.Observe(at(0), at(500*time.Millisecond), noon))
	ms := time.Millisecond
	for _, tt := range []struct {
		name             string
		at               lease.Reading
		earliest, latest time.Time
	}{
		// Latest is rounded up and earliest down, so that a nanosecond of doubt shows as a millisecond.
		{"receive instant", at(500 * ms), noon.Add(-ms), noon.Add(1501 * ms)},
		{"send instant", at(0), noon.Add(-501 * ms), noon.Add(1001 * ms)},
		{"an hour later", at(500*ms + time.Hour), noon.Add(time.Hour - 721*ms), noon.Add(time.Hour + 1500*ms + 721*ms)},
		{"an hour before", at(500*ms - time.Hour), noon.Add(-time.Hour - 721*ms), noon.Add(-time.Hour + 1500*ms + 721*ms)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, [2]time.Time{tt.earliest, tt.latest}, interval(t, &c, tt.at))
		})
	}
}

func TestBoundsAreWholeMillisecondsInUTC(t *testing.T) {
	var c servertime.Clock
	c.Observe(at(0), at(1234567), noon.In(time.FixedZone("elsewhere", 3600)))
	for _, bound := range interval(t, &c, at(98765432)) {
		require.Zero(t, bound.Nanosecond()%int(time.Millisecond))
		require.Equal(t, time.UTC, bound.Location())
	}
}

func TestClocksThatDisagreeOnlyWiden(t *testing.T) {
	s := time.Second
	start := at(0)
	for _, tt := range []struct {
		name             string
		now              lease.Reading
		earliest, latest time.Duration // since noon, without drift and rounding
	}{
		{"monotonic clock stood still", lease.Reading{Mono: start.Mono, Wall: start.Wall.Add(60 * s)}, 0, 61 * s},
		{"wall clock set forward", lease.Reading{Mono: start.Mono + 10*s, Wall: start.Wall.Add(3600 * s)}, 10 * s, 3601 * s},
		{"wall clock set back", lease.Reading{Mono: start.Mono + 10*s, Wall: start.Wall.Add(-3600 * s)}, -3600 * s, 11 * s},
		{"asked about the past, wall clock set back since", lease.Reading{Mono: start.Mono - 10*s, Wall: start.Wall.Add(3600 * s)}, -10 * s, 3601 * s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c servertime.Clock
			c.Observe(start, start, noon)
			got := interval(t, &c, tt.now)
			require.WithinRange(t, got[0], noon.Add(tt.earliest-s), noon.Add(tt.earliest))
			require.WithinRange(t, got[1], noon.Add(tt.latest), noon.Add(tt.latest+s))
			require.False(t, c.Known(tt.now, servertime.MaxWidth))

			// The next answer heals it.
			later := lease.Reading{Mono: tt.now.Mono + 20*s, Wall: tt.now.Wall.Add(20 * s)}
			require.False(t, c.Observe(later, later, noon.Add(30*s)))
			require.True(t, c.Known(later, servertime.MaxWidth))
		})
	}
}

func TestWallClockSetByCenturiesDoesNotOverflow(t *testing.T) {
	var c servertime.Clock
	c.Observe(at(0), at(0), noon)
	now := lease.Reading{Mono: 10 * time.Second} // its wall clock shows the year 1
	got := interval(t, &c, now)
	require.True(t, got[0].Before(noon))
	require.WithinRange(t, got[1], noon.Add(11*time.Second), noon.Add(12*time.Second))

	var d servertime.Clock
	d.Observe(lease.Reading{Mono: 1}, lease.Reading{Mono: 1}, noon)
	got = interval(t, &d, at(10*time.Second))
	require.WithinRange(t, got[0], noon.Add(9*time.Second), noon.Add(10*time.Second))
	require.True(t, got[1].After(noon.Add(11*time.Second)))
}

func TestContradictionStartsAnewFromTheNewest(t *testing.T) {
	var fresh servertime.Clock
	fresh.Observe(at(10*time.Second), at(11*time.Second), noon.Add(time.Hour))
	want := interval(t, &fresh, at(12*time.Second))

	t.Run("reported in order", func(t *testing.T) {
		var c servertime.Clock
		require.False(t, c.Observe(at(0), at(time.Second), noon))
		require.True(t, c.Observe(at(10*time.Second), at(11*time.Second), noon.Add(time.Hour)))
		require.Equal(t, want, interval(t, &c, at(12*time.Second)))
	})
	t.Run("reported late", func(t *testing.T) {
		var c servertime.Clock
		require.False(t, c.Observe(at(10*time.Second), at(11*time.Second), noon.Add(time.Hour)))
		require.True(t, c.Observe(at(0), at(time.Second), noon))
		require.Equal(t, want, interval(t, &c, at(12*time.Second)))
	})
	t.Run("service set back", func(t *testing.T) {
		var c servertime.Clock
		require.False(t, c.Observe(at(0), at(time.Second), noon.Add(2*time.Hour)))
		require.True(t, c.Observe(at(10*time.Second), at(11*time.Second), noon.Add(time.Hour)))
		require.Equal(t, want, interval(t, &c, at(12*time.Second)))
	})
}

func TestLateReportStillNarrows(t *testing.T) {
	// The newer answer was made just before a tick, the older one, reported late, just after the tick before it.
	var c servertime.Clock
	require.False(t, c.Observe(at(980*time.Millisecond), at(1000*time.Millisecond), noon))
	require.False(t, c.Observe(at(0), at(20*time.Millisecond), noon))
	got := interval(t, &c, at(1000*time.Millisecond))
	require.WithinRange(t, got[0], noon.Add(979*time.Millisecond), noon.Add(980*time.Millisecond))
	require.WithinRange(t, got[1], noon.Add(1020*time.Millisecond), noon.Add(1021*time.Millisecond))
}

func TestGarbageIsIgnored(t *testing.T) {
	sent, received := at(10*time.Second), at(11*time.Second)
	for name, observe := range map[string]func(*servertime.Clock) bool{
		"no date":              func(c *servertime.Clock) bool { return c.Observe(sent, received, time.Time{}) },
		"unix epoch":           func(c *servertime.Clock) bool { return c.Observe(sent, received, time.Unix(0, 0)) },
		"far future":           func(c *servertime.Clock) bool { return c.Observe(sent, received, noon.AddDate(5000, 0, 0)) },
		"received before sent": func(c *servertime.Clock) bool { return c.Observe(received, sent, noon.Add(time.Hour)) },
		"never sent":           func(c *servertime.Clock) bool { return c.Observe(lease.Reading{}, received, noon.Add(time.Hour)) },
		"never received": func(c *servertime.Clock) bool {
			return c.Observe(lease.Reading{Mono: -1}, lease.Reading{}, noon.Add(time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var c servertime.Clock
			require.False(t, observe(&c))
			require.False(t, c.Known(received, time.Hour), "garbage taught the clock something")

			require.False(t, c.Observe(at(0), at(time.Second), noon))
			before := interval(t, &c, received)
			require.False(t, observe(&c))
			require.Equal(t, before, interval(t, &c, received))
		})
	}
}

func TestKnownEndsWithAge(t *testing.T) {
	var c servertime.Clock
	c.Observe(at(0), at(100*time.Millisecond), noon)
	earliest, latest, _ := c.Interval(at(time.Minute))
	width := latest.Sub(earliest)
	require.True(t, c.Known(at(time.Minute), width))
	require.False(t, c.Known(at(time.Minute), width-1))

	// 1.1 s grow by 400 ppm of the age.
	require.True(t, c.Known(at(time.Hour), servertime.MaxWidth))
	require.False(t, c.Known(at(80*time.Minute), servertime.MaxWidth))
}

func TestConcurrentUse(t *testing.T) {
	var c servertime.Clock
	start := time.Now()
	read := func() (lease.Reading, time.Time) {
		now := time.Now()
		return lease.Reading{Mono: now.Sub(start), Wall: now.Round(0)}, noon.Add(now.Sub(start))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				sent, truth := read()
				received, _ := read()
				if c.Observe(sent, received, truth.Truncate(time.Second)) {
					t.Error("an exact service was found to contradict itself")
				}
				at, truth := read()
				earliest, latest, ok := c.Interval(at)
				if !ok || truth.Before(earliest) || truth.After(latest) {
					t.Errorf("true time %v lies outside [%v, %v]", truth, earliest, latest)
				}
				c.Known(at, servertime.MaxWidth)
			}
		})
	}
	wg.Wait()
}

func BenchmarkObserveInterval(b *testing.B) {
	var c servertime.Clock
	b.ReportAllocs()
	var d time.Duration
	for b.Loop() {
		d += time.Millisecond
		c.Observe(at(d), at(d+d%1000), noon.Add(d).Truncate(time.Second))
		if _, _, ok := c.Interval(at(d)); !ok {
			b.Fatal("nothing known")
		}
	}
}
