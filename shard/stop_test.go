package shard_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// idling waits until it is asked to stop, and stores no checkpoint.
func idling(*host) shard.Func {
	return func(_ context.Context, s *shard.Shard) error {
		<-s.Stopping()
		return nil
	}
}

// The function's context does not carry the worker's lease, whose token is not the shard's, but everything else.
func TestContextHidesTheWorkersLease(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		type key struct{}
		c, err := lease.New(w.connect(lease.SystemClock), quiet())
		require.NoError(t, err)
		worker, err := shard.New(c, groupName, shard.Static("x"), nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		err = worker.Run(ctx, func(ctx context.Context, _ *shard.Shard) error {
			defer cancel()
			_, ok := lease.FromContext(ctx)
			require.False(t, ok)
			require.Equal(t, "value", ctx.Value(key{}))
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, c.Close(t.Context()))
	})
}

// Shards with nothing to do, and so without checkpoints, may be handed over as often as it takes: that is no crash.
func TestOrderlyHandOversAreNoTries(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		var h *host
		for range 8 {
			h = w.host(config{source: shard.Static("x"), fn: idling})
			w.eventually(w.ttl, "it runs", func() bool { return len(h.saw(shard.Claimed)) == 1 })
			require.NoError(t, h.stop())
		}
		list, err := shard.List(t.Context(), h.client, groupName)
		require.NoError(t, err)
		require.Equal(t, shard.Free, list[0].State)
		require.Zero(t, list[0].Tries)
	})
}

// A record is deleted whose owner stores no checkpoint by which it would learn of it: the bell tells it.
func TestLostWhileIdle(t *testing.T) {
	withDeletion(t, func(t *testing.T, w *world) {
		c := config{source: shard.Static(ids(6)...), fn: idling}
		hosts := []*host{w.host(c), w.host(c), w.host(c)}
		w.eventually(3*w.ttl, "shared", func() bool {
			return len(hosts[0].saw(shard.Claimed))+len(hosts[1].saw(shard.Claimed))+len(hosts[2].saw(shard.Claimed)) >= 6
		})
		w.sleep(3 * w.ttl)
		lost := func() (n int) {
			for _, h := range hosts {
				n += len(h.saw(shard.ShardLost))
			}
			return n
		}
		for i, id := range ids(6) {
			w.erase(t, groupName+"/s/"+id)
			w.eventually(w.ttl+2*time.Second, "its owner knows", func() bool { return lost() == i+1 })
			w.sleep(2 * w.ttl) // it runs again
		}
	})
}

// What was handed over is not taken back within two intervals, also if nobody else has claimed it.
func TestNotTakenBackAtOnce(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		gave := map[string]time.Time{}
		var back []time.Duration
		source := shard.Static(ids(4)...)
		a := w.host(config{source: source, fn: idling, observe: func(e lease.Event) {
			mu.Lock()
			defer mu.Unlock()
			at, was := gave[e.Name]
			if e.Kind == shard.HandedOver {
				gave[e.Name] = time.Now()
			}
			if e.Kind == shard.Claimed && was {
				back = append(back, time.Since(at))
			}
		}})
		w.sleep(2 * w.ttl)
		b := w.host(config{source: source, fn: idling, wire: func(ctx context.Context, op, key string, do func(context.Context) error) error {
			if op == "swap" && isRow(key) {
				return unavailable(op) // it gets no shard
			}
			return do(ctx)
		}})
		w.eventually(2*w.ttl, "two are handed over", func() bool { mu.Lock(); defer mu.Unlock(); return len(gave) == 2 })
		require.NoError(t, b.stop())
		w.eventually(2*w.ttl, "they are claimed again", func() bool { mu.Lock(); defer mu.Unlock(); return len(back) == 2 })
		for _, d := range back {
			require.GreaterOrEqual(t, d, 2*a.worker.Options().Interval)
		}
	})
}

// A function is stuck and its shard was taken from it: this process does not run the shard a second time beside it.
func TestStuckFunctionIsNotDoubled(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		h := w.host(config{source: shard.Static("x"), opt: shard.Options{Progress: 2 * w.ttl}, fn: func(*host) shard.Func {
			return func(context.Context, *shard.Shard) error {
				<-release
				return nil
			}
		}})
		w.eventually(5*w.ttl, "it is taken from it", func() bool { return len(h.saw(shard.Forced)) == 1 })
		w.sleep(3 * w.ttl)
		require.Len(t, h.saw(shard.Claimed), 1)
		close(release)
		w.eventually(2*w.ttl, "it is claimed again", func() bool { return len(h.saw(shard.Claimed)) > 1 })
	})
}

// A lease is lost while its functions go on for a little: Run waits for them.
func TestRunWaitsForLostFunctions(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		returned := false
		h := w.host(config{source: shard.Static("x"), fn: func(*host) shard.Func {
			return func(ctx context.Context, _ *shard.Shard) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				returned = true
				return ctx.Err()
			}
		}})
		w.eventually(w.ttl, "it runs", func() bool { return len(h.saw(shard.Claimed)) == 1 })
		h.wire.kill()
		w.eventually(2*w.ttl, "it is lost", func() bool { return len(h.saw(shard.ShardLost)) == 1 })
		require.NoError(t, h.stop())
		require.True(t, returned)
	})
}

// A function that is asked to stop has Grace to finish its batch and to store it, when its shard moves and when its worker leaves.
func TestGraceToFinishABatch(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var faults []error
		var stops int
		fn := func(h *host) shard.Func {
			return func(ctx context.Context, s *shard.Shard) error {
				select {
				case <-s.Stopping():
				case <-ctx.Done():
				}
				time.Sleep(h.worker.Options().Grace / 2)
				mu.Lock()
				stops++
				faults = append(faults, ctx.Err())
				mu.Unlock()
				err := s.Checkpoint(ctx, "done")
				mu.Lock()
				faults = append(faults, err)
				mu.Unlock()
				return nil
			}
		}
		count := func() int { mu.Lock(); defer mu.Unlock(); return stops }
		a := w.host(config{source: shard.Static(ids(2)...), fn: fn})
		w.sleep(w.ttl)
		b := w.host(config{source: shard.Static(ids(2)...), fn: fn})
		w.eventually(2*w.ttl, "one has moved", func() bool { return count() == 1 })
		require.NoError(t, a.stop())
		require.Equal(t, 2, count())
		require.NoError(t, b.stop())
		mu.Lock()
		defer mu.Unlock()
		for _, err := range faults {
			require.NoError(t, err)
		}
		list, err := shard.List(t.Context(), a.client, groupName)
		require.NoError(t, err)
		for _, st := range list {
			require.Equal(t, "done", st.Position)
		}
	})
}
