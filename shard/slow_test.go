package shard_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// One batch takes ten lease times: nothing is lost and the others go on.
func TestSH04_SlowBatch(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		all := ids(4)
		var slow atomic.Int32
		fn := func(h *host) shard.Func {
			return func(ctx context.Context, s *shard.Shard) error {
				if s.ID() != all[0] {
					return h.process(ctx, s)
				}
				slow.Add(1)
				select {
				case <-time.After(10 * w.ttl):
				case <-ctx.Done():
				}
				return s.Checkpoint(ctx, "1")
			}
		}
		source := shard.Static(all...)
		a := w.host(config{source: source, fn: fn})
		b := w.host(config{source: source, fn: fn})
		w.sleep(3 * w.ttl) // they have shared
		begun := slow.Load()
		require.NotZero(t, begun)
		w.sleep(5 * w.ttl)
		list, err := shard.List(t.Context(), a.client, groupName)
		require.NoError(t, err)
		require.Equal(t, shard.Running, list[0].State)
		require.GreaterOrEqual(t, list[0].Age, 5*w.ttl, "no checkpoint for so long")
		require.Equal(t, all[0], list[0].ID)
		require.Equal(t, begun, slow.Load())
		w.eventually(5*w.ttl, "called again after it has returned", func() bool { return slow.Load() == begun+1 })
		for _, h := range []*host{a, b} {
			require.Empty(t, h.saw(lease.Lost))
			require.Empty(t, h.saw(shard.ShardLost))
		}
		require.Empty(t, w.journal.repeats())
	})
}

// With a limit the shard is given up in order: the function is asked, its context ends, and another worker has it.
func TestSH04_ProgressLimit(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var causes []error
		var begun []lease.Token
		calls := func() int { mu.Lock(); defer mu.Unlock(); return len(begun) }
		fn := func(*host) shard.Func {
			return func(ctx context.Context, s *shard.Shard) error {
				mu.Lock()
				begun = append(begun, s.Token())
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				causes = append(causes, context.Cause(ctx))
				return ctx.Err()
			}
		}
		h := w.host(config{source: shard.Static("stuck"), fn: fn, opt: shard.Options{Progress: 4 * w.ttl}})
		w.sleep(4*w.ttl - w.ttl/6)
		require.Equal(t, 1, calls())
		w.eventually(3*w.ttl, "given up, and claimed anew", func() bool { return calls() == 2 })
		mu.Lock()
		defer mu.Unlock()
		require.ErrorIs(t, causes[0], shard.ErrHandOver)
		require.Greater(t, begun[1], begun[0])
		list, err := shard.List(t.Context(), h.client, groupName)
		require.NoError(t, err)
		require.Equal(t, 2, list[0].Tries, "both without a checkpoint")
	})
}

// A function that ignores its context does not keep the shard: its context ends first, then the shard moves, and what it does
// after that is refused.
func TestStuckHandOver(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		late := make(chan error, 1)
		var mu sync.Mutex
		var ended, moved time.Time
		stuck := func(*host) shard.Func {
			return func(ctx context.Context, s *shard.Shard) error {
				context.AfterFunc(ctx, func() { mu.Lock(); defer mu.Unlock(); ended = time.Now() })
				<-release
				late <- s.Checkpoint(context.Background(), "late")
				return nil
			}
		}
		good := func(*host) shard.Func {
			return func(ctx context.Context, s *shard.Shard) error {
				mu.Lock()
				if moved.IsZero() {
					moved = time.Now()
				}
				mu.Unlock()
				<-ctx.Done()
				return nil
			}
		}
		source := shard.Static("x")
		a := w.host(config{source: source, fn: stuck})
		w.sleep(w.ttl)
		b := w.host(config{source: source, fn: good})
		w.sleep(w.ttl)
		a.cancel()
		err := <-a.ended
		a.ended <- err
		require.ErrorIs(t, err, shard.ErrOverrun)
		require.ErrorIs(t, err, lease.ErrLost)
		require.Len(t, a.saw(shard.Forced), 1)
		w.eventually(w.ttl, "it has moved", func() bool { mu.Lock(); defer mu.Unlock(); return !moved.IsZero() })
		mu.Lock()
		require.False(t, ended.IsZero())
		require.True(t, ended.Before(moved), "the context ends before the shard moves")
		mu.Unlock()
		close(release)
		require.ErrorIs(t, <-late, lease.ErrLost)
		list, err := shard.List(t.Context(), b.client, groupName)
		require.NoError(t, err)
		require.Empty(t, list[0].Position)
	})
}
