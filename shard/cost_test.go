package shard_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// counter counts the requests of all workers as they go to DynamoDB.
type counter struct {
	mu  sync.Mutex
	ops map[string]int
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		c.mu.Lock()
		c.ops[op]++
		c.mu.Unlock()
		return next.RoundTrip(r)
	})
}

func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	ops := c.ops
	c.ops = map[string]int{}
	return ops
}

// In a settled fleet the writes are one per worker and heartbeat, and the checkpoints, however many shards there are. Counted on
// the wire.
func TestSteadyWrites(t *testing.T) {
	const shards, workers, ttl = 1000, 4, 30 * time.Second
	const each = shards / workers
	synctest.Test(t, func(t *testing.T) {
		wire := &counter{ops: map[string]int{}}
		sdk := emulator.Client("", wire.wrap(emulator.Transport(emulator.NewEmbedded(), nil)))
		_, err := sdk.CreateTable(t.Context(), dynamolock.CreateTableInput("locks"))
		require.NoError(t, err)
		w := newWorld(t, backend{name: "dynamodb", minTTL: ttl, open: func(t *testing.T) service {
			return service{connect: func(lease.Clock) lease.Store {
				s, err := dynamolock.New(sdk, "locks", nil)
				require.NoError(t, err)
				return s
			}}
		}})
		var stored atomic.Int64
		c := config{source: shard.Static(ids(shards)...), fn: ticking(2*time.Minute, &stored)}
		var hosts []*host
		for range workers {
			hosts = append(hosts, w.host(c))
		}
		time.Sleep(4 * ttl)
		for _, h := range hosts {
			require.Len(t, h.saw(shard.Claimed), len(h.saw(shard.HandedOver))+each)
		}
		wire.take()
		stored.Store(0)
		const span = 4 * time.Minute
		time.Sleep(span)
		ops := wire.take()
		interval := ttl / 3
		rounds := int(span / interval)
		t.Logf("%d shards, %d workers, %d intervals: %v, %d checkpoints", shards, workers, rounds, ops, stored.Load())
		require.LessOrEqual(t, ops["UpdateItem"], workers*rounds*11/10+int(stored.Load()), "writes")
		require.Zero(t, ops["PutItem"]+ops["DeleteItem"]+ops["TransactWriteItems"])
		require.LessOrEqual(t, ops["GetItem"], (2*workers+2)*rounds*11/10, "the roster and the next worker; the roster after each scan")
		pages := ops["Scan"]
		require.LessOrEqual(t, pages, 2*rounds*11/10+workers, "the books, and the audits (one page each on this engine)")
		require.GreaterOrEqual(t, pages, rounds*9/10)
	})
}

// What joining, claiming, handing over and leaving cost, as the package's documentation says.
func TestCosts(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		idle := func(*host) shard.Func {
			return func(_ context.Context, s *shard.Shard) error {
				<-s.Stopping()
				return nil
			}
		}
		c := config{source: shard.Static(ids(10)...), fn: idle}
		a := w.host(c)
		time.Sleep(5 * w.ttl)
		a.wire.take()
		b := w.host(c)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		ops := map[string]int{}
		for _, call := range b.wire.take() {
			ops[call.op]++
		}
		// A worker lease, the roster twice (the entry and the plan); nothing is free yet.
		require.Equal(t, 1, ops["acquire"])
		require.LessOrEqual(t, ops["swap"], 2)
		require.Equal(t, 1, ops["scan"])
		require.LessOrEqual(t, ops["load"]+ops["inspect"], 7)
		time.Sleep(4 * w.ttl)
		claims := 0
		for _, call := range b.wire.take() {
			if call.op == "swap" && isRow(call.key) {
				claims++
			}
		}
		require.Equal(t, 5, claims, "a claim is one write")
		given := 0
		for _, call := range a.wire.take() {
			if call.op == "swap" && isRow(call.key) {
				given++
			}
		}
		require.Equal(t, 5, given, "giving back is one write")
		require.NoError(t, b.stop())
		ops = map[string]int{}
		for _, call := range b.wire.take() {
			ops[call.op]++
		}
		require.Equal(t, 6, ops["swap"], "five shards and the roster")
		require.Equal(t, 1, ops["release"])
	})
}
