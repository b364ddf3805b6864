package shard_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// bucket is a table's write capacity. What is above it is refused.
type bucket struct {
	mu      sync.Mutex
	rate    float64
	tokens  float64
	at      time.Time
	seconds map[int64]int // requests that were let through, by second
	refused int
}

func newBucket(rate float64) *bucket {
	return &bucket{rate: rate, tokens: rate, at: time.Now(), seconds: map[int64]int{}}
}

func (b *bucket) set(rate float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rate = rate
}

// reset forgets what was counted.
func (b *bucket) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seconds, b.refused = map[int64]int{}, 0
}

// counts are the busiest second, the sum, and what was refused.
func (b *bucket) counts() (busiest, sum, refused int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.seconds {
		busiest, sum = max(busiest, n), sum+n
	}
	return busiest, sum, b.refused
}

const latency = 5 * time.Millisecond

// hook lets a host's requests through as the capacity allows; reads are free.
func (b *bucket) hook(ctx context.Context, op, _ string, do func(context.Context) error) error {
	time.Sleep(latency)
	write := op == "acquire" || op == "renew" || op == "release" || op == "swap"
	b.mu.Lock()
	now := time.Now()
	b.tokens = min(b.rate, b.tokens+b.rate*now.Sub(b.at).Seconds())
	b.at = now
	if write && b.tokens < 1 {
		b.refused++
		b.mu.Unlock()
		return &lease.Error{Op: op, Class: lease.ErrUnavailable, Err: errors.New("throttled")}
	}
	if write {
		b.tokens--
	}
	b.seconds[now.Unix()]++
	b.mu.Unlock()
	return do(ctx)
}

// ticking stores a checkpoint about every period, each shard with a phase of its own.
func ticking(period time.Duration, stored *atomic.Int64) func(*host) shard.Func {
	return func(*host) shard.Func {
		return func(ctx context.Context, s *shard.Shard) error {
			pause := time.Duration(rand.Int64N(int64(period)))
			for n := number(s.Position()) + 1; ; n++ {
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
				stored.Add(1)
				pause = period
			}
		}
	}
}

// Three thousand shards on a table with little capacity, and then with too little.
func TestSH07_ThousandsOfShards(t *testing.T) {
	const shards, workers, ttl = 3000, 3, 20 * time.Second
	inMemory(t, func(t *testing.T, w *world) {
		b := newBucket(600)
		var stored atomic.Int64
		c := config{source: shard.Static(ids(shards)...), ttl: ttl, wire: b.hook, fn: ticking(10*time.Second, &stored)}
		var hosts []*host
		for range workers {
			hosts = append(hosts, w.host(c))
		}
		owned := func() int {
			list, err := shard.List(t.Context(), hosts[0].client, groupName)
			n := 0
			for _, st := range list {
				if err == nil && st.State == shard.Running {
					n++
				}
			}
			return n
		}
		took := w.eventually(2*time.Minute, "all are owned", func() bool { time.Sleep(time.Second); return owned() == shards })
		t.Logf("all owned %v after the start, on 600 writes/s", took)
		time.Sleep(time.Minute)
		lost := func() (n int) {
			for _, h := range hosts {
				n += len(h.saw(lease.Lost)) + len(h.saw(shard.ShardLost))
			}
			return n
		}
		require.Zero(t, lost())

		// a) Enough for the checkpoints.
		b.reset()
		stored.Store(0)
		const span = 2 * time.Minute
		time.Sleep(span)
		busiest, sum, refused := b.counts()
		interval := ttl / 3
		rounds := float64(span) / float64(interval)
		formula := float64(stored.Load()) + rounds*(workers+2*workers+2)
		t.Logf("a) %d requests, %d refused, the busiest second %d, the mean %d, the formula %.0f", sum, refused, busiest, sum/120, formula)
		require.Zero(t, lost())
		require.LessOrEqual(t, busiest, 2*sum/120)
		require.InEpsilon(t, formula, sum, 0.5)

		// b) Too little for two minutes.
		b.set(120)
		time.Sleep(span)
		_, _, refused = b.counts()
		t.Logf("b) %d refused on 120 writes/s, %d shards lost", refused, lost())
		require.NotZero(t, refused)
		require.LessOrEqual(t, refused, 120*120, "tries in vain are fewer than writes")
		require.Zero(t, lost(), "the renewal gets through: no worker loses its shards at once")
		b.set(600)
		w.eventually(time.Minute, "all are owned", func() bool { time.Sleep(time.Second); return owned() == shards })
	})
}

// c) A list of many pages fails in the middle, once: it is not taken for the whole.
func TestSH07_PartialList(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		all := ids(30)
		a := w.host(config{source: shard.Static(all...)})
		w.eventually(2*w.ttl, "all run", func() bool { return w.journal.loads(a)[0] == len(all) })
		a.wire.cutScans(10)
		time.Sleep(3 * w.ttl)
		require.NotZero(t, a.wire.wasCut())
		require.Equal(t, len(all), w.journal.loads(a)[0])
		require.Empty(t, a.saw(shard.RowLost))
		require.Empty(t, a.saw(shard.HandedOver))
		require.NotEmpty(t, a.saw(shard.GroupFailed))
		_, err := shard.List(t.Context(), a.client, groupName)
		require.ErrorIs(t, err, lease.ErrUnavailable)
		a.wire.cutScans(0)
		list, err := shard.List(t.Context(), a.client, groupName)
		require.NoError(t, err)
		require.Len(t, list, len(all))
	})
}

// A source that fails, lists a part, or lists nonsense changes nothing, and says so.
func TestSourceFails(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		list, failure := []shard.Info{{ID: "a"}, {ID: "b"}}, error(nil)
		set := func(l []shard.Info, err error) {
			mu.Lock()
			defer mu.Unlock()
			list, failure = l, err
		}
		source := shard.SourceFunc(func(context.Context) ([]shard.Info, error) {
			mu.Lock()
			defer mu.Unlock()
			return list, failure
		})
		set(list, errors.New("page 6: throttled"))
		h := w.host(config{source: source, opt: shard.Options{SourceInterval: 5 * time.Second}})
		time.Sleep(10 * time.Second)
		require.Zero(t, w.journal.loads(h)[0])
		require.ErrorContains(t, h.saw(shard.SourceFailed)[0].Err, "page 6: throttled")
		set([]shard.Info{{ID: "a"}, {ID: "b"}}, nil)
		w.eventually(10*time.Second, "both run", func() bool { return w.journal.loads(h)[0] == 2 })
		for i, bad := range [][]shard.Info{{{ID: "a"}, {ID: "c"}, {ID: "c"}}, {{ID: "c", Parents: []string{"c"}}}, {{ID: "a"}}} {
			set(bad, nil)
			time.Sleep(20 * time.Second)
			require.Equal(t, 2, w.journal.loads(h)[0], "list %d", i)
		}
		var said []string
		for _, e := range h.saw(shard.SourceFailed) {
			said = append(said, e.Err.Error())
		}
		require.Contains(t, fmt.Sprint(said), `the shard "c" twice`)
		require.Contains(t, fmt.Sprint(said), "parents of each other")
		require.Empty(t, w.journal.repeats())
	})
}

// cutScans makes every scan fail after n records; 0 mends it.
func (w *wire) cutScans(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cutAfter = n
}

// cutting is seq, cut short.
func (w *wire) cutting(seq iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
	w.mu.Lock()
	after := w.cutAfter
	w.mu.Unlock()
	if after == 0 {
		return seq
	}
	return func(yield func(lease.Record, error) bool) {
		n := 0
		for rec, err := range seq {
			if n++; n > after {
				w.mu.Lock()
				w.cuts++
				w.mu.Unlock()
				yield(lease.Record{}, unavailable("list"))
				return
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}
