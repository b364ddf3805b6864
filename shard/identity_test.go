package shard_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// Two processes run under one name, as in a rolling update, and one is killed and started again: each is a worker of its own.
func TestSH06_SameName(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := config{source: shard.Static(ids(4)...), holder: "w-1"}
		a := w.host(c)
		time.Sleep(w.ttl)
		require.Empty(t, a.saw(lease.Namesake))
		b := w.host(c)
		time.Sleep(max(20*time.Second, 2*w.ttl))
		require.Equal(t, []int{2, 2}, w.journal.loads(a, b), "each shard has one of the two, not both: the journal checks that")
		require.Len(t, b.saw(lease.Namesake), 1, "the warning")
		require.Equal(t, a.worker.Holder(), b.saw(lease.Namesake)[0].Err.(*lease.HeldError).Holder) //nolint:errorlint // made so
		require.NotEqual(t, a.worker.Holder(), b.worker.Holder())
		tokens := map[string]lease.Token{}
		list, err := shard.List(t.Context(), b.client, groupName)
		require.NoError(t, err)
		for _, st := range list {
			tokens[st.ID] = st.Token
		}
		old := w.journal.running()
		a.kill()
		a2 := w.host(c)
		w.eventually(w.takeover(), "shared again", func() bool {
			return w.journal.loads(b)[0] == 2 && w.journal.loads(a2)[0] == 2
		})
		list, err = shard.List(t.Context(), b.client, groupName)
		require.NoError(t, err)
		for _, st := range list {
			if old[st.ID] == a {
				require.Greater(t, st.Token, tokens[st.ID], "a new owner has a new token, whatever its name")
			}
		}
	})
}

// A worker is paused in mid-flight; what it sends when it wakes is refused, by its record and by the tokens.
func TestPausedWorker(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		late := make(chan error, 1)
		paused, woken := make(chan struct{}), make(chan struct{})
		var once sync.Once
		var stale lease.Token
		fn := func(h *host) shard.Func {
			return func(ctx context.Context, s *shard.Shard) error {
				if err := s.Checkpoint(ctx, "1"); err != nil {
					return err
				}
				once.Do(func() { stale = s.Token(); close(paused) })
				<-ctx.Done()
				return ctx.Err()
			}
		}
		a := w.host(config{source: shard.Static("x"), fn: fn})
		<-paused
		// The network holds back a's next checkpoint while a is cut off; it arrives long after.
		a.wire.intercept(func(ctx context.Context, op, key string, do func(context.Context) error) error {
			if isRow(key) && op == "swap" {
				go func() {
					<-woken
					late <- do(context.Background())
				}()
			}
			<-ctx.Done()
			return unanswered(op)
		})
		time.Sleep(w.ttl / 2)
		b := w.host(config{source: shard.Static("x"), fn: func(*host) shard.Func {
			return func(ctx context.Context, s *shard.Shard) error {
				require.Greater(t, s.Token(), stale)
				require.Equal(t, "1", s.Position())
				for n := 2; ; n++ {
					if err := s.Checkpoint(ctx, strconv.Itoa(n)); err != nil {
						return err
					}
					wait := time.NewTimer(time.Second)
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-wait.C:
					}
				}
			}
		}})
		w.eventually(w.takeover()+w.ttl, "b has it", func() bool { return len(b.saw(shard.Claimed)) == 1 })
		require.NotEmpty(t, append(a.saw(lease.Lost), a.saw(shard.ShardLost)...))
		close(woken)
		select {
		case err := <-late:
			require.ErrorIs(t, err, lease.ErrConflict)
		default: // a had nothing under way: its context had ended first
		}
		require.Empty(t, b.saw(shard.ShardLost))
	})
}

// The write of a claim is held back until another worker has claimed the shard, and one of a checkpoint until another has stored
// one: both are refused by the record itself.
func TestLateWritesAreRefused(t *testing.T) {
	for _, what := range []string{"claim", "checkpoint"} {
		t.Run(what, func(t *testing.T) { onEveryStore(t, func(t *testing.T, w *world) { lateWrite(t, w, what) }) })
	}
}

func lateWrite(t *testing.T, w *world, what string) {
	t.Helper()
	nth := map[string]int{"claim": 2, "checkpoint": 3}[what] // after the record's creation
	late, arrive := make(chan error, 1), make(chan struct{})
	var mu sync.Mutex
	swaps, cut := 0, false
	source := shard.Static("x")
	a := w.host(config{source: source, wire: func(ctx context.Context, op, key string, do func(context.Context) error) error {
		mu.Lock()
		if op == "swap" && isRow(key) {
			swaps++
		}
		first := swaps == nth && !cut
		cut = cut || first
		off := cut
		mu.Unlock()
		if first {
			go func() {
				<-arrive
				late <- do(context.Background())
			}()
		}
		if off {
			<-ctx.Done()
			return unanswered(op)
		}
		return do(ctx)
	}})
	w.eventually(w.ttl, "it is held back", func() bool { mu.Lock(); defer mu.Unlock(); return cut })
	b := w.host(config{source: source})
	w.eventually(w.takeover()+w.ttl, "b has it", func() bool { return w.journal.loads(b)[0] == 1 })
	time.Sleep(time.Second)
	close(arrive)
	require.ErrorIs(t, <-late, lease.ErrConflict, "a late %s", what)
	time.Sleep(w.ttl)
	require.Equal(t, []int{0, 1}, w.journal.loads(a, b))
	require.Empty(t, b.saw(shard.ShardLost))
}

// A claim is stored, and its answer comes after the worker's lease has ended: it does not count, and the function is not called
// for it.
func TestClaimAnsweredTooLate(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		swaps, cut := 0, false
		var tokens []lease.Token
		h := w.host(config{
			source: shard.Static("x"),
			wire: func(ctx context.Context, op, key string, do func(context.Context) error) error {
				mu.Lock()
				if op == "swap" && isRow(key) {
					swaps++
				}
				first := swaps == 2 && !cut
				cut = cut || first
				off := cut && !first
				mu.Unlock()
				if first {
					err := do(ctx)
					time.Sleep(2 * w.ttl)
					mu.Lock()
					defer mu.Unlock()
					cut, swaps = false, 3
					return err
				}
				if off {
					return unavailable(op)
				}
				return do(ctx)
			},
			fn: func(*host) shard.Func {
				return func(_ context.Context, s *shard.Shard) error {
					tokens = append(tokens, s.Token())
					<-s.Stopping()
					return nil
				}
			},
		})
		w.eventually(w.ttl, "it is stored", func() bool { mu.Lock(); defer mu.Unlock(); return cut })
		list, err := shard.List(t.Context(), w.host(config{source: shard.Static("x"), opt: shard.Options{MaxShards: 1}, fn: idling}).client, groupName)
		require.NoError(t, err)
		w.eventually(4*w.ttl, "the lease is lost", func() bool { return len(h.saw(lease.Lost)) == 1 })
		time.Sleep(3 * w.ttl)
		for _, token := range tokens {
			require.Greater(t, token, list[0].Token)
		}
	})
}
