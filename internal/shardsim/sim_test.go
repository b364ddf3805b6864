package shardsim_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/internal/shardsim"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/shard"
)

var full = flag.Bool("full", false, "simulate 10,000 shards and 200 workers, and write docs/shards.svg; the table is in the log")

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// TestSimulation runs package shard itself in virtual time, and the model beside it.
func TestSimulation(t *testing.T) {
	s := shardsim.Small()
	if *full {
		s = shardsim.Full()
	}
	var samples []shardsim.Sample
	synctest.Test(t, func(t *testing.T) { samples = newFleet(t, s).run() })
	model := s.PerLease(1)
	ours, theirs := s.Results(samples), s.Results(model)
	table := shardsim.Table(s, ours, theirs)
	t.Log("\n" + table)
	for i, r := range ours {
		require.Equal(t, s.Shards, r.Owned, r.Phase)
		require.LessOrEqual(t, r.Spread, 1, r.Phase)
		require.Zero(t, r.Lost, r.Phase)
		p := s.Phases[i]
		switch {
		case p.Restart:
			require.LessOrEqual(t, r.Converged, time.Duration(s.Workers+p.Join)*p.Every*2+3*s.TTL, r.Phase)
		case p.Throttle:
		case p.Name == "start":
			require.LessOrEqual(t, r.Converged, 4*s.TTL, r.Phase)
		case p.Join > 0:
			require.LessOrEqual(t, r.Converged, time.Duration(p.Join)*p.Every+3*s.TTL, r.Phase)
		default:
			require.LessOrEqual(t, r.Converged, 3*s.TTL+shardsim.SampleEvery, r.Phase)
		}
		if p.Name == "settled" || p.Name == "relieved" || p.Throttle {
			require.Zero(t, r.Moves, "no moves in a settled fleet: %s", r.Phase)
		}
	}
	svg := shardsim.Plot(s, samples, model)
	require.Contains(t, string(svg), "</svg>")
	if *full {
		require.NoError(t, os.WriteFile(filepath.Join("..", "..", "docs", "shards.svg"), svg, 0o644)) //nolint:gosec // a picture for everybody
	}
}

// fleet is a fleet of workers of package shard on one service in memory.
type fleet struct {
	shardsim.Schedule
	t       *testing.T
	service *memlease.Service
	source  shard.Source
	wg      sync.WaitGroup

	mu       sync.Mutex
	began    time.Time
	capacity float64
	tokens   float64
	at       time.Time
	workers  []*worker
	owner    map[string]*worker // who works on a shard
	last     map[string]*worker
	present  shardsim.Sample
	samples  []shardsim.Sample
}

type worker struct {
	cancel context.CancelFunc
	dead   bool // its process was killed
	loads  int
	client *lease.Client
}

func newFleet(t *testing.T, s shardsim.Schedule) *fleet {
	ids := make([]string, s.Shards)
	for i := range ids {
		ids[i] = fmt.Sprintf("shardId-%012d", i)
	}
	return &fleet{
		Schedule: s, t: t, service: memlease.NewService(), source: shard.Static(ids...), began: time.Now(),
		capacity: float64(s.Capacity), at: time.Now(), owner: map[string]*worker{}, last: map[string]*worker{},
	}
}

func (f *fleet) run() []shardsim.Sample {
	for range f.Workers {
		f.join()
	}
	stop := make(chan struct{})
	f.wg.Go(func() {
		time.Sleep(shardsim.SampleEvery / 2)
		for {
			f.sample()
			select {
			case <-stop:
				return
			case <-time.After(shardsim.SampleEvery):
			}
		}
	})
	var end time.Duration
	for _, p := range f.Phases {
		end += p.Length
		f.phase(p)
		time.Sleep(time.Until(f.began.Add(end)))
	}
	time.Sleep(time.Millisecond)
	close(stop)
	f.mu.Lock()
	f.capacity = 1e6
	all := f.workers
	f.mu.Unlock()
	for _, w := range all {
		w.cancel()
	}
	f.wg.Wait()
	return f.samples
}

func (f *fleet) phase(p shardsim.Phase) {
	f.mu.Lock()
	f.capacity = float64(f.Capacity)
	if p.Throttle {
		f.capacity = float64(f.Throttled)
	}
	f.mu.Unlock()
	for range p.Join {
		f.join()
		time.Sleep(p.Every)
	}
	if p.Crash > 0 {
		f.crash(p.Crash)
	}
	if p.Restart {
		f.mu.Lock()
		n := len(f.workers)
		f.mu.Unlock()
		for range n {
			f.oldest()
			time.Sleep(time.Second)
			f.join()
			time.Sleep(p.Every - time.Second)
		}
	}
}

// oldest ends the worker that has been there for longest, in order.
func (f *fleet) oldest() {
	f.mu.Lock()
	w := f.workers[0]
	f.workers = f.workers[1:]
	f.mu.Unlock()
	w.cancel()
}

// crash kills n workers.
func (f *fleet) crash(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range n {
		w := f.workers[i*len(f.workers)/n]
		w.dead = true
		w.cancel()
	}
	f.workers = slices.DeleteFunc(f.workers, func(w *worker) bool { return w.dead })
}

func (f *fleet) join() {
	w := &worker{}
	store := f.service.Store(&memlease.Options{Intercept: func(ctx context.Context, op string, do func() error) error {
		return f.request(ctx, w, op, do)
	}})
	c, err := lease.New(store, &lease.Options{TTL: f.TTL, Observer: lease.ObserverFunc(func(e lease.Event) {
		if e.Kind == shard.ShardLost {
			f.mu.Lock()
			if !w.dead {
				f.present.Lost++
			}
			f.mu.Unlock()
		}
	})})
	require.NoError(f.t, err)
	w.client = c
	k, err := shard.New(c, "sim", f.source, nil)
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(f.t.Context())
	w.cancel = cancel
	f.mu.Lock()
	f.workers = append(f.workers, w)
	f.mu.Unlock()
	f.wg.Go(func() {
		_ = k.Run(ctx, func(ctx context.Context, s *shard.Shard) error { return f.process(ctx, w, s) })
	})
}

// request is a request on its way: a few milliseconds, and the table's capacity.
func (f *fleet) request(ctx context.Context, w *worker, op string, do func() error) error {
	time.Sleep(time.Duration(5+rand.IntN(10)) * time.Millisecond)
	f.mu.Lock()
	if w.dead {
		f.mu.Unlock()
		return &lease.Error{Op: op, Class: lease.ErrUnavailable, Err: errors.New("killed")}
	}
	now := time.Now()
	f.tokens = min(f.capacity, f.tokens+f.capacity*now.Sub(f.at).Seconds())
	f.at = now
	switch op {
	case "list":
		f.present.Reads += f.Shards*250/1_000_000 + 1
	case "load", "inspect":
		f.present.Reads++
	default:
		if f.tokens < 1 {
			f.present.Refused++
			f.mu.Unlock()
			return &lease.Error{Op: op, Class: lease.ErrUnavailable, Err: errors.New("throttled")}
		}
		f.tokens--
		f.present.Writes++
	}
	f.mu.Unlock()
	_ = ctx
	return do()
}

// process stores a checkpoint now and then.
func (f *fleet) process(ctx context.Context, w *worker, s *shard.Shard) error {
	f.mu.Lock()
	if last := f.last[s.ID()]; last != nil && last != w {
		f.present.Moves++
	}
	f.last[s.ID()], f.owner[s.ID()] = w, w
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.owner[s.ID()] == w {
			delete(f.owner, s.ID())
		}
	}()
	pause := time.Duration(rand.Int64N(int64(f.Checkpoint)))
	for n := 1; ; n++ {
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-s.Stopping():
			t.Stop()
			return nil
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		if err := s.Checkpoint(ctx, strconv.Itoa(n)); err != nil {
			return err
		}
		f.mu.Lock()
		f.present.Checkpoints++
		f.present.Writes--
		f.mu.Unlock()
		pause = f.Checkpoint
	}
}

func (f *fleet) sample() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		w.loads = 0
	}
	x := &f.present
	x.Owned = 0
	for _, w := range f.owner {
		if !w.dead {
			w.loads++
			x.Owned++
		}
	}
	low, high := f.Shards, 0
	for _, w := range f.workers {
		low, high = min(low, w.loads), max(high, w.loads)
	}
	x.At, x.Workers, x.Spread = time.Since(f.began).Round(time.Millisecond), len(f.workers), high-low
	f.samples = append(f.samples, *x)
	x.Reads, x.Writes, x.Checkpoints, x.Refused = 0, 0, 0, 0
}

func TestTableHasEveryPhase(t *testing.T) {
	s := shardsim.Small()
	r := s.Results(s.PerLease(1))
	table := shardsim.Table(s, r, r)
	for _, p := range s.Phases {
		require.Contains(t, table, "| "+p.Name+" |")
	}
	require.Equal(t, len(s.Phases)+2, strings.Count(table, "\n"))
}
