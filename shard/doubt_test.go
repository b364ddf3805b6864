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

// The answers to every third write are lost, and every seventh request does not arrive: what was stored is found out, and every
// record is processed once.
func TestLostAnswers(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		lossy := func() hook {
			var mu sync.Mutex
			writes := 0
			return func(ctx context.Context, op, _ string, do func(context.Context) error) error {
				if op != "swap" {
					return do(ctx)
				}
				mu.Lock()
				writes++
				n := writes
				mu.Unlock()
				if n%7 == 0 {
					return unavailable(op)
				}
				err := do(ctx)
				if n%3 == 0 {
					return unanswered(op)
				}
				return err
			}
		}
		source := shard.Static(ids(8)...)
		a := w.host(config{source: source, wire: lossy()})
		time.Sleep(2 * w.ttl)
		b := w.host(config{source: source, wire: lossy()})
		w.eventually(3*w.ttl, "both have half", func() bool { return w.journal.loads(a)[0] == 4 && w.journal.loads(b)[0] == 4 })
		time.Sleep(3 * w.ttl)
		require.NoError(t, a.stop())
		w.eventually(2*w.ttl, "w2 has all", func() bool { return w.journal.loads(b)[0] == 8 })
		time.Sleep(w.ttl)
		require.NoError(t, b.stop())
		require.Empty(t, w.journal.repeats())
		list, err := shard.List(t.Context(), w.host(config{source: source, opt: shard.Options{MaxShards: 1}}).client, groupName)
		require.NoError(t, err)
		require.Len(t, list, 8)
	})
}

// The answers to claims are slow: looks at the records in between see shards that this worker owns and does not run yet, and leave
// them alone.
func TestSlowClaims(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		slow := func(ctx context.Context, op, key string, do func(context.Context) error) error {
			err := do(ctx)
			if op == "swap" && isRow(key) {
				time.Sleep(w.ttl / 4)
			}
			return err
		}
		h := w.host(config{source: shard.Static(ids(60)...), wire: slow, fn: func(*host) shard.Func {
			return func(_ context.Context, s *shard.Shard) error {
				<-s.Stopping()
				return s.Err()
			}
		}})
		w.eventually(10*w.ttl, "all run", func() bool { return len(h.saw(shard.Claimed)) == 60 })
		time.Sleep(2 * w.ttl)
		list, err := shard.List(t.Context(), h.client, groupName)
		require.NoError(t, err)
		for _, st := range list {
			require.Equal(t, shard.Running, st.State, st.ID)
		}
		require.Empty(t, h.saw(shard.ShardLost))
		require.Len(t, h.saw(shard.Claimed), 60)
	})
}

// A claim's answer never comes and its lease lives on: the record that names this worker for a shard that it does not run is freed
// by its next look, and run.
func TestForgottenClaim(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		h := w.host(config{source: shard.Static(ids(4)...)})
		w.eventually(w.ttl, "all run", func() bool { return w.journal.loads(h)[0] == 4 })
		require.NoError(t, shard.Park(t.Context(), h.client, groupName, "shard-001", "ops", ""))
		w.eventually(w.ttl, "it is handed back", func() bool { return w.journal.loads(h)[0] == 3 })
		list, err := shard.List(t.Context(), h.client, groupName)
		require.NoError(t, err)
		// What a claim would have written, behind the worker's back.
		r := h.wire.records()
		mine, err := r.Load(t.Context(), groupName+"/s/shard-000")
		require.NoError(t, err)
		rec, err := r.Load(t.Context(), groupName+"/s/shard-001")
		require.NoError(t, err)
		_, err = r.Swap(t.Context(), rec, mine.Value, 0)
		require.NoError(t, err)
		w.eventually(2*w.ttl, "it runs", func() bool { return w.journal.loads(h)[0] == 4 })
		again, err := shard.List(t.Context(), h.client, groupName)
		require.NoError(t, err)
		require.Greater(t, again[1].Token, list[1].Token)
		w.journal = newJournal() // its records were numbered anew
	})
}

// The roster is deleted while everybody works: all are lost at their next look, and join anew; no shard is claimed before its
// owner's trust has ended, and none is left.
func TestRosterDeleted(t *testing.T) {
	withDeletion(t, func(t *testing.T, w *world) {
		source := shard.Static(ids(6)...)
		hosts := []*host{w.host(config{source: source}), w.host(config{source: source}), w.host(config{source: source})}
		all := func() bool {
			loads := w.journal.loads(hosts...)
			return loads[0]+loads[1]+loads[2] == 6 && spread(loads) == 0
		}
		w.eventually(3*w.ttl, "shared", all)
		w.sleep(3 * w.ttl)
		// One of them does not see the roster for a while: its trust ends by itself, not before the others claim.
		var cut atomic.Bool
		cut.Store(true)
		hosts[2].wire.intercept(func(ctx context.Context, op, key string, do func(context.Context) error) error {
			if cut.Load() && op == "load" && key == groupName+"/roster" {
				return unavailable(op)
			}
			return do(ctx)
		})
		erased := time.Now()
		w.erase(t, groupName+"/roster")
		w.eventually(w.ttl, "the one that sees nothing has lost its shards", func() bool { return len(hosts[2].saw(shard.ShardLost)) == 2 })
		require.NotEmpty(t, hosts[0].saw(shard.ShardLost))
		cut.Store(false)
		w.eventually(5*w.ttl, "shared again", all)
		t.Logf("shared again %v after the deletion", time.Since(erased))
		require.Empty(t, hosts[0].saw(lease.Lost))
	})
}

// The token of a shard grows over everything: hand-overs, deaths, deletions of its record.
func TestTokensGrowOverDeletions(t *testing.T) {
	withDeletion(t, func(t *testing.T, w *world) {
		source := shard.Static("x")
		var last lease.Token
		for range 5 {
			h := w.host(config{source: source})
			w.eventually(3*w.ttl, "it runs or is parked", func() bool {
				list, err := shard.List(t.Context(), h.client, groupName)
				if err == nil && len(list) == 1 && list[0].State == shard.IsParked {
					require.NoError(t, shard.UnparkAt(t.Context(), h.client, groupName, "x", ""))
				}
				return len(h.saw(shard.Claimed)) > 0
			})
			claims := h.saw(shard.Claimed)
			require.Greater(t, claims[0].Token, last)
			last = claims[0].Token
			require.NoError(t, h.stop())
			w.erase(t, groupName+"/s/x")
			w.journal = newJournal()
		}
	})
}

// A seed's count is used up by claims: the next token begins a new seed.
func TestCountIsUsedUp(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		const claims = shard.MaxCount + 3
		var tokens []lease.Token
		fn := func(*host) shard.Func {
			return func(_ context.Context, s *shard.Shard) error {
				tokens = append(tokens, s.Token())
				<-s.Stopping()
				return nil
			}
		}
		client := w.host(config{source: shard.Static("x"), fn: fn}).client
		w.eventually(w.ttl, "it runs", func() bool { return len(tokens) == 1 })
		require.NoError(t, w.hosts[0].stop())
		for len(tokens) < claims {
			worker, err := shard.New(client, groupName, shard.Static("x"), nil)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			n := len(tokens)
			err = worker.Run(ctx, func(fctx context.Context, s *shard.Shard) error {
				defer cancel()
				tokens = append(tokens, s.Token())
				return s.Checkpoint(fctx, "")
			})
			require.NoError(t, err)
			cancel()
			require.Greater(t, len(tokens), n)
		}
		for i := 1; i < len(tokens); i++ {
			require.Greater(t, tokens[i], tokens[i-1])
		}
		require.Greater(t, tokens[claims-1]>>11, tokens[0]>>11)
	})
}

// After a restore from an older copy the tokens go on above all that were handed out.
func TestReseed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		source := shard.Static(ids(3)...)
		a := w.host(config{source: source})
		w.eventually(w.ttl, "all run", func() bool { return w.journal.loads(a)[0] == 3 })
		require.ErrorIs(t, shard.Reseed(t.Context(), a.client, groupName), lease.ErrInvalid, "a worker runs")
		require.NoError(t, a.stop())
		before, err := shard.List(t.Context(), a.client, groupName)
		require.NoError(t, err)
		require.NoError(t, shard.Reseed(t.Context(), a.client, groupName))
		b := w.host(config{source: source})
		w.eventually(w.ttl, "all run", func() bool { return w.journal.loads(b)[0] == 3 })
		after, err := shard.List(t.Context(), b.client, groupName)
		require.NoError(t, err)
		for i := range before {
			require.Greater(t, after[i].Token>>11, before[i].Token>>11, "a new seed")
		}
	})
}

// A group of workers that live for less than a TTL each, as functions do: the shards of one that dies are taken over all the same.
func TestShortLives(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		source := shard.Static(ids(4)...)
		victim := w.host(config{source: source})
		w.eventually(w.ttl, "it has all", func() bool { return w.journal.loads(victim)[0] == 4 })
		victim.kill()
		taken := false
		for range 12 {
			h := w.host(config{source: source})
			time.Sleep(w.ttl * 2 / 3)
			taken = taken || w.journal.loads(h)[0] == 4
			require.NoError(t, h.stop())
		}
		require.True(t, taken)
	})
}
