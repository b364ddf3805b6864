package shard_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// Record 7 of one shard kills every process that reads it. It is parked after five tries, and the others go on.
func TestSH08_CrashLoop(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		all := ids(6)
		poisoned := true
		var mu sync.Mutex
		progress := map[string][]time.Time{}
		var fn func(h *host) shard.Func
		c := config{source: shard.Static(all...), ttl: max(2*time.Second, w.backend.minTTL)}
		fn = func(h *host) shard.Func {
			return func(ctx context.Context, s *shard.Shard) error {
				select {
				case <-h.killed:
					return errKilled
				default:
				}
				span := w.journal.begin(h, s)
				defer span.finish()
				for n := number(s.Position()) + 1; ; n++ {
					select {
					case <-h.killed:
						return errKilled
					case <-s.Stopping():
						return nil
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(2 * time.Second):
					}
					mu.Lock()
					dies := s.ID() == all[0] && n == 7 && poisoned
					mu.Unlock()
					if dies {
						h.kill()
						time.AfterFunc(time.Second, func() { // its supervisor
							mu.Lock()
							defer mu.Unlock()
							w.host(c)
						})
						return errKilled
					}
					span.did(n)
					if err := s.Checkpoint(ctx, strconv.Itoa(n)); err != nil {
						return err
					}
					mu.Lock()
					progress[s.ID()] = append(progress[s.ID()], time.Now())
					mu.Unlock()
				}
			}
		}
		c.fn = fn
		began := time.Now()
		mu.Lock()
		w.host(c)
		w.host(c)
		w.host(c)
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		reader := w.host(config{source: shard.Static(all...), ttl: c.ttl, opt: shard.Options{MaxShards: 1}, fn: fn})
		list, err := shard.List(t.Context(), reader.client, groupName)
		require.NoError(t, err)
		require.Equal(t, shard.IsParked, list[0].State)
		require.Equal(t, 5, list[0].Tries)
		require.Contains(t, list[0].Parked, "claimed 5 times in a row without a checkpoint")
		require.Equal(t, "6", list[0].Position)
		mu.Lock()
		crashes := len(w.hosts) - 4
		// Its worker may die twice in a row, before it and under it.
		bound := max(30*time.Second, 2*(3*c.ttl+w.backend.slack))
		for _, id := range all[1:] {
			last := began
			for _, at := range append(progress[id], time.Now()) {
				require.LessOrEqual(t, at.Sub(last), bound, "%s makes progress", id)
				last = at
			}
		}
		poisoned = false
		mu.Unlock()
		require.Equal(t, 6, crashes, "one after its checkpoints, five without")
		require.NoError(t, shard.Unpark(t.Context(), reader.client, groupName, all[0]))
		w.eventually(w.takeover(), "it goes on", func() bool {
			list, err := shard.List(t.Context(), reader.client, groupName)
			return err == nil && list[0].State == shard.Running && list[0].Tries == 0 && number(list[0].Position) > 7
		})
	})
}

// A function that fails is called again after growing pauses, and parked with its error.
func TestFailingFunction(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		var calls []time.Time
		fn := func(*host) shard.Func {
			return func(context.Context, *shard.Shard) error {
				calls = append(calls, time.Now())
				return errors.New("no such table")
			}
		}
		h := w.host(config{source: shard.Static("x"), fn: fn})
		w.sleep(time.Minute)
		require.Len(t, calls, 5)
		for i := 2; i < len(calls); i++ {
			require.Greater(t, calls[i].Sub(calls[i-1]), calls[i-1].Sub(calls[i-2])*3/2)
		}
		list, err := shard.List(t.Context(), h.client, groupName)
		require.NoError(t, err)
		require.Equal(t, shard.IsParked, list[0].State)
		require.Contains(t, list[0].Parked, "no such table")
		require.Len(t, h.saw(shard.Parked), 1)
		require.NoError(t, shard.Unpark(t.Context(), h.client, groupName, "x"))
		w.sleep(10 * time.Second)
		require.Greater(t, len(calls), 5)
	})
}

// An operator parks a shard that runs: its owner hands it back in order, and nobody claims it.
func TestPark(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		h := w.host(config{source: shard.Static(ids(3)...)})
		idle := func(*host) shard.Func {
			return func(ctx context.Context, s *shard.Shard) error {
				<-s.Stopping()
				return nil
			}
		}
		w.eventually(w.ttl, "it runs", func() bool { return w.journal.loads(h)[0] == 3 })
		require.NoError(t, shard.Park(t.Context(), h.client, groupName, "shard-001", "ops", "bad data"))
		w.eventually(w.ttl, "it is handed back", func() bool { return w.journal.loads(h)[0] == 2 })
		w.sleep(2 * w.ttl)
		require.Nil(t, w.journal.running()["shard-001"])
		require.Empty(t, w.journal.repeats())
		require.NoError(t, h.stop())
		other := w.host(config{source: shard.Static(ids(3)...), fn: idle}) // stores no checkpoint by which it would learn of it
		w.sleep(w.ttl)
		require.NoError(t, shard.Park(t.Context(), h.client, groupName, "shard-002", "ops", ""))
		require.ErrorIs(t, shard.UnparkAt(t.Context(), h.client, groupName, "shard-002", "7"), lease.ErrInvalid, "it is still being run")
		list, err := shard.List(t.Context(), h.client, groupName)
		require.NoError(t, err)
		require.NotEmpty(t, list[2].Owner, "it is shown who has not handed it back")
		w.eventually(w.ttl, "it is handed back", func() bool { return len(other.saw(shard.HandedOver)) == 1 })
		require.NoError(t, shard.Unpark(t.Context(), h.client, groupName, "shard-001"))
		require.NoError(t, shard.Unpark(t.Context(), h.client, groupName, "shard-002"))
		w.eventually(2*w.ttl, "all run", func() bool { return len(other.saw(shard.Claimed)) == 4 })
		require.Error(t, shard.Park(t.Context(), h.client, groupName, "no-such", "ops", ""))
		require.Error(t, shard.Park(t.Context(), h.client, groupName, "shard-000", "", ""))
	})
}
