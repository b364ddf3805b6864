package gocronlease_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/gocronlease"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a machine whose clock is off.
func host(t *testing.T, s *memlease.Service, off time.Duration) *lease.Client {
	t.Helper()
	clock := func() lease.Reading {
		r := lease.SystemClock()
		r.Wall = r.Wall.Add(off)
		return r
	}
	c, err := lease.New(s.Store(&memlease.Options{Clock: clock}), &lease.Options{
		TTL: 6 * time.Second, Observer: lease.ObserverFunc(func(lease.Event) {}),
	})
	require.NoError(t, err)
	return c
}

// runs counts runs and how many of them overlap.
type runs struct {
	mu            sync.Mutex
	now, max, all int
	tokens        []lease.Token
}

func (r *runs) run(d time.Duration, token lease.Token) {
	r.mu.Lock()
	r.now++
	r.all++
	r.max = max(r.max, r.now)
	r.tokens = append(r.tokens, token)
	r.mu.Unlock()
	time.Sleep(d)
	r.mu.Lock()
	r.now--
	r.mu.Unlock()
}

// schedule starts a scheduler with one job every 10 s and returns its end.
func schedule(t *testing.T, off time.Duration, option gocron.SchedulerOption, task func()) func() {
	t.Helper()
	s, err := gocron.NewScheduler(option, gocron.WithLocation(time.UTC))
	require.NoError(t, err)
	first := time.Now().Truncate(10 * time.Second).Add(10*time.Second - off) // by a clock that is off
	_, err = s.NewJob(gocron.DurationJob(10*time.Second), gocron.NewTask(task),
		gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(first)))
	require.NoError(t, err)
	s.Start()
	return func() { require.NoError(t, s.Shutdown()) }
}

var offsets = []time.Duration{-700 * time.Millisecond, 0, 400 * time.Millisecond, 900 * time.Millisecond}

// TestOnceAnOccurrence: four schedulers whose clocks differ by more than the job takes.
func TestOnceAnOccurrence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := memlease.NewService()
		r := &runs{}
		var ends []func()
		for _, off := range offsets {
			c := host(t, svc, off)
			k, err := gocronlease.NewLocker(c, &gocronlease.LockerOptions{Period: 10 * time.Second})
			require.NoError(t, err)
			ends = append(ends, schedule(t, off, gocron.WithDistributedLocker(k), func() {
				l, ok := k.Lease("report")
				if !ok {
					t.Error("the job runs without its lease")
					return
				}
				r.run(5*time.Millisecond, l.Token())
			}), func() { require.NoError(t, c.Close(context.Background())) })
		}
		time.Sleep(5*time.Minute + 5*time.Second)
		for _, end := range ends {
			end()
		}
		require.InDelta(t, 30, r.all, 1, "every occurrence once")
		require.Equal(t, 1, r.max)
		for i := 1; i < len(r.tokens); i++ {
			require.Greater(t, r.tokens[i], r.tokens[i-1])
		}
	})
}

// TestNoOverlap: without an occurrence the runs do not overlap, though there are more of them.
func TestNoOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := memlease.NewService()
		r := &runs{}
		var ends []func()
		for _, off := range offsets {
			c := host(t, svc, 0)
			k, err := gocronlease.NewLocker(c, nil)
			require.NoError(t, err)
			ends = append(ends, schedule(t, off, gocron.WithDistributedLocker(k), func() { r.run(300*time.Millisecond, 0) }),
				func() { require.NoError(t, c.Close(context.Background())) })
		}
		time.Sleep(time.Minute + 5*time.Second) // between two runs: gocron's Shutdown waits for a run that is just starting
		for _, end := range ends {
			end()
		}
		require.Equal(t, 1, r.max)
		require.GreaterOrEqual(t, r.all, 6)
	})
}

// TestLockerSaysWhy: held and passed are told apart, and a lost lock is told at the end of the run.
func TestLockerSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := memlease.NewService()
		a, b := host(t, svc, 0), host(t, svc, 0)
		opt := &gocronlease.LockerOptions{Period: time.Minute}
		ka, err := gocronlease.NewLocker(a, opt)
		require.NoError(t, err)
		kb, err := gocronlease.NewLocker(b, opt)
		require.NoError(t, err)
		lock, err := ka.Lock(t.Context(), "report")
		require.NoError(t, err)
		_, err = kb.Lock(t.Context(), "report")
		require.ErrorIs(t, err, lease.ErrHeld)
		require.NoError(t, lock.Unlock(t.Context()))
		_, ok := ka.Lease("report")
		require.False(t, ok)
		_, err = kb.Lock(t.Context(), "report")
		require.ErrorIs(t, err, lease.ErrPassed)
		time.Sleep(time.Minute)
		lock, err = kb.Lock(t.Context(), "report")
		require.NoError(t, err)
		svc.Delete("report")
		require.ErrorIs(t, lock.Unlock(t.Context()), lease.ErrLost)
		require.NoError(t, a.Close(t.Context()))
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestOneElectorLeads: one of three, the next at once after a resignation, and within the bound after a crash.
func TestOneElectorLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := memlease.NewService()
		electors, cut := map[string]*gocronlease.Elector{}, map[string]bool{}
		var mu sync.Mutex
		for i := range 3 {
			name := fmt.Sprint("host", i)
			st := svc.Store(&memlease.Options{Intercept: func(ctx context.Context, _ string, do func() error) error {
				mu.Lock()
				dead := cut[name]
				mu.Unlock()
				if dead {
					<-ctx.Done()
					return ctx.Err()
				}
				return do()
			}})
			c, err := lease.New(st, &lease.Options{TTL: 6 * time.Second, Observer: lease.ObserverFunc(func(lease.Event) {})})
			require.NoError(t, err)
			electors[name], err = gocronlease.NewElector(c, "cron")
			require.NoError(t, err)
		}
		leader := func() string {
			var who []string
			for name, e := range electors {
				if err := e.IsLeader(t.Context()); err == nil {
					who = append(who, name)
				} else {
					require.ErrorIs(t, err, gocronlease.ErrNotLeader)
				}
			}
			require.LessOrEqual(t, len(who), 1)
			if len(who) == 0 {
				return ""
			}
			return who[0]
		}
		time.Sleep(time.Second)
		first := leader()
		require.NotEmpty(t, first)
		l, ok := electors[first].Lease()
		require.True(t, ok)
		require.NoError(t, electors[first].Close(t.Context()))
		delete(electors, first)
		time.Sleep(2 * time.Second)
		second := leader()
		require.NotEmpty(t, second)
		next, ok := electors[second].Lease()
		require.True(t, ok)
		require.Greater(t, next.Token(), l.Token())
		mu.Lock()
		cut[second] = true
		mu.Unlock()
		for range 140 { // 14 s, never two
			time.Sleep(100 * time.Millisecond)
			leader()
		}
		third := leader()
		require.NotEqual(t, second, third)
		require.NotEmpty(t, third)
		mu.Lock()
		cut[second] = false
		mu.Unlock()
		for name, e := range electors {
			err := e.Close(t.Context())
			if name == second {
				require.ErrorIs(t, err, lease.ErrLost)
				continue
			}
			require.NoError(t, err)
		}
	})
}

func TestBadArguments(t *testing.T) {
	_, err := gocronlease.NewLocker(nil, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	for _, o := range []gocronlease.LockerOptions{
		{Period: time.Millisecond},
		{Period: -time.Second},
		{Period: time.Minute, Occurrence: func(_ string, now time.Time) time.Time { return now }},
	} {
		_, err = gocronlease.NewLocker(&lease.Client{}, &o)
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
	_, err = gocronlease.NewElector(nil, "x")
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = gocronlease.NewElector(&lease.Client{}, "")
	require.ErrorIs(t, err, lease.ErrInvalid)
}
