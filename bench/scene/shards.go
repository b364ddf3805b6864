package scene

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/internal/shardsim"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// KCL is the subject of the model of the Kinesis Client Library 2.x.
const KCL = "kcl-2-model"

// workers share the shards. They hold them; checkpoints are what the application makes of them. shardTTL is short, so that a fleet
// settles soon.
const (
	workers  = 4
	shardTTL = 9 * time.Second
)

// shards counts package shard on DynamoDB with workers that are settled, and beside it the model of one lease per shard, at
// the same TTL. 10,000 shards are computed by the cost formula of the package's documentation, after it was checked at
// the sizes that were counted.
func shards(ctx context.Context, w *World, s Subject) error {
	var wg sync.WaitGroup
	sizes := []int{10, 100, 1000}
	counted := make([]shardCost, len(sizes))
	errs := make([]error, len(sizes))
	for i, n := range sizes {
		wg.Go(func() { counted[i], errs[i] = countShards(ctx, w, s, n) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, n := range sizes {
		formula := shardFormula(n)
		if counted[i].writes > 1.25*formula.writes+1 || counted[i].requests > 1.25*formula.requests+2 {
			return fmt.Errorf("%d shards: counted %+v a minute, the formula says %+v at most", n, counted[i], formula)
		}
	}
	const many = 10_000
	p := &seat{w: w, s: s, scenario: fmt.Sprintf("shards-%d", many)}
	p.noteShards(shardFormula(many))
	for _, n := range append(sizes, many) {
		p := &seat{w: w, s: Subject{Name: KCL, Store: DynamoDB}, scenario: fmt.Sprintf("shards-%d", n)}
		p.noteShards(model(n))
	}
	return nil
}

// shardCost is per minute at referenceTTL.
type shardCost struct{ requests, reads, writes float64 }

func (p *seat) noteShards(c shardCost) {
	p.note("per minute requests", "requests", c.requests)
	p.note("per minute reads", "RU", c.reads)
	p.note("per minute writes", "WU", c.writes)
}

// shards: only package shard has a part, the model is beside it.
func (s Subject) shards() bool { return s.Name == "cloudlease-dynamodb" }

func countShards(ctx context.Context, w *World, s Subject, n int) (shardCost, error) {
	p, err := w.seat(ctx, fmt.Sprintf("shards-%d", n), s, shardTTL)
	if err != nil {
		return shardCost{}, err
	}
	defer p.close()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("shard-%05d", i)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var running atomic.Int64
	var wg sync.WaitGroup
	ended := make(chan error, workers)
	for range workers {
		worker, err := newWorker(p, ids)
		if err != nil {
			return shardCost{}, err
		}
		wg.Go(func() {
			ended <- worker.Run(working, func(ctx context.Context, s *shard.Shard) error {
				running.Add(1)
				defer running.Add(-1)
				select {
				case <-s.Stopping():
				case <-ctx.Done():
				}
				return nil
			})
		})
	}
	err = settled(ctx, &running, int64(n), ended)
	if err != nil {
		return shardCost{}, err
	}
	time.Sleep(2 * p.set.TTL)
	p.Take()
	began := time.Now()
	time.Sleep(2 * p.set.TTL)
	count, window := p.Take(), time.Since(began)
	if have := running.Load(); have != int64(n) {
		return shardCost{}, fmt.Errorf("%d of %d shards run: the fleet is not settled", have, n)
	}
	stop()
	wg.Wait()
	scale := time.Minute.Seconds() / window.Seconds() * p.set.TTL.Seconds() / referenceTTL.Seconds()
	c := shardCost{float64(count.Requests) * scale, count.Reads * scale, count.Writes * scale}
	p.noteShards(c)
	return c, nil
}

func newWorker(p *seat, ids []string) (*shard.Worker, error) {
	store, err := dynamolock.New(emulator.Client(p.set.URL, nil), p.set.Table, nil)
	if err != nil {
		return nil, err
	}
	c, err := lease.New(store, &lease.Options{TTL: p.set.TTL, Observer: lease.ObserverFunc(func(lease.Event) {})})
	if err != nil {
		return nil, err
	}
	return shard.New(c, "bench", shard.Static(ids...), nil)
}

// settled waits until all shards run.
func settled(ctx context.Context, running *atomic.Int64, n int64, ended <-chan error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for running.Load() != n {
		select {
		case <-tick.C:
		case err := <-ended:
			return fmt.Errorf("a worker ended with %d of %d shards running: %w", running.Load(), n, err)
		case <-ctx.Done():
			return fmt.Errorf("%d of %d shards run: %w", running.Load(), n, context.Cause(ctx))
		}
	}
	return nil
}

// recordSize is about what a shard's record has, in bytes.
const recordSize = 250

// shardFormula is the cost of a settled fleet, from the documentation of package shard: a write per worker and heartbeat; two
// reads per worker and interval; a scan and a read per interval for the books, and as much for the audits.
func shardFormula(n int) shardCost {
	beats := time.Minute.Seconds() / (referenceTTL.Seconds() / 3)
	pages := math.Ceil(float64(n) * recordSize / 1e6)
	units := math.Ceil(float64(n) * recordSize / 4096)
	reads := beats * (2*workers + 2)
	return shardCost{
		requests: beats*workers + reads + beats*2*pages, reads: reads + beats*2*units, writes: beats * workers,
	}
}

// model is the cost of the same fleet under the rule of the Kinesis Client Library 2.x, whose scans are eventually consistent.
func model(n int) shardCost {
	const settle, measure = 20 * time.Minute, 10 * time.Minute
	s := shardsim.Schedule{
		Shards: n, Workers: workers, TTL: referenceTTL, Capacity: 1 << 20, Throttled: 1 << 20, Checkpoint: 24 * time.Hour,
		Phases: []shardsim.Phase{{Name: "start", Length: settle}, {Name: "settled", Length: measure}},
	}
	reads, writes := 0, 0
	for _, x := range s.PerLease(1) {
		if x.At >= settle {
			reads += x.Reads
			writes += x.Writes
		}
	}
	minutes := measure.Minutes()
	pages := math.Ceil(float64(n) * recordSize / 1e6)
	scans := float64(reads) / minutes / pages
	return shardCost{
		requests: float64(reads+writes) / minutes, reads: scans * math.Ceil(float64(n)*recordSize/4096) / 2, writes: float64(writes) / minutes,
	}
}
