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

// stream is a source whose shards split and merge, each with so many records.
type stream struct {
	mu      sync.Mutex
	shards  []shard.Info
	records int
}

func (s *stream) add(id string, parents ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = append(s.shards, shard.Info{ID: id, Parents: parents})
}

func (s *stream) Shards(context.Context) ([]shard.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]shard.Info(nil), s.shards...), nil
}

// read processes a shard to its end.
func (s *stream) read(ends func(id string)) func(*host) shard.Func {
	return func(h *host) shard.Func {
		return func(ctx context.Context, sh *shard.Shard) error {
			select {
			case <-h.killed:
				return errKilled
			default:
			}
			span := h.w.journal.begin(h, sh)
			defer span.finish()
			for n := number(sh.Position()) + 1; n <= s.records; n++ {
				select {
				case <-h.killed:
					return errKilled
				case <-sh.Stopping():
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(100 * time.Millisecond):
				}
				span.did(n)
				if err := sh.Checkpoint(ctx, strconv.Itoa(n)); err != nil {
					return err
				}
			}
			if err := sh.Finish(ctx); err != nil {
				return err
			}
			ends(sh.ID())
			return nil
		}
	}
}

func (j *journal) firstBegin(id string) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	if spans := j.spans[id]; len(spans) > 0 {
		return spans[0].begin
	}
	return time.Time{}
}

// P splits into C1 and C2, which merge into M, while workers are killed.
func TestSH05_ParentsFirst(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		s := &stream{records: 100}
		var mu sync.Mutex
		ended := map[string]time.Time{}
		c := config{source: s, fn: s.read(func(id string) {
			mu.Lock()
			defer mu.Unlock()
			ended[id] = time.Now()
		})}
		end := func(id string) time.Time {
			mu.Lock()
			defer mu.Unlock()
			return ended[id]
		}
		s.add("M", "C1", "C2") // children are listed before their parents, and before their parents' end
		s.add("C1", "P")
		s.add("P")
		s.add("C2", "P")
		hosts := []*host{w.host(c), w.host(c), w.host(c)}
		kill := func(id string) {
			if h := w.journal.running()[id]; h != nil {
				h.kill()
				hosts = append(hosts, w.host(c))
			}
		}
		w.sleep(5 * time.Second)
		kill("P")
		w.eventually(3*w.takeover(), "P has ended", func() bool { return !end("P").IsZero() })
		interval := hosts[0].worker.Options().Interval
		// Two looks: the one that sees the end and shares out, and the one that claims.
		took := w.eventually(2*interval*11/10+time.Second, "the children begin", func() bool {
			return !w.journal.firstBegin("C1").IsZero() && !w.journal.firstBegin("C2").IsZero()
		})
		t.Logf("the children begin %v after their parent's end", took)
		w.sleep(2 * time.Second)
		kill("C1")
		w.eventually(3*w.takeover(), "both have ended", func() bool { return !end("C1").IsZero() && !end("C2").IsZero() })
		w.eventually(2*interval*11/10+time.Second+w.ttl, "M begins", func() bool { return !w.journal.firstBegin("M").IsZero() })
		kill("M")
		w.eventually(3*w.takeover(), "M has ended", func() bool { return !end("M").IsZero() })
		for child, parents := range map[string][]string{"C1": {"P"}, "C2": {"P"}, "M": {"C1", "C2"}} {
			for _, p := range parents {
				require.False(t, w.journal.firstBegin(child).Before(end(p)), "%s begins after the end of %s", child, p)
			}
		}
	})
}

// The records of a finished parent and of a live child are deleted behind the workers' backs.
func TestSH05_RecordsVanish(t *testing.T) {
	withDeletion(t, func(t *testing.T, w *world) {
		s := &stream{records: 100}
		c := config{source: s, fn: s.read(func(string) {})}
		s.add("P")
		s.add("C1", "P")
		s.add("C2", "P")
		hosts := []*host{w.host(c), w.host(c)}
		w.eventually(w.ttl+20*time.Second, "C1 has begun", func() bool { return !w.journal.firstBegin("C1").IsZero() })
		w.erase(t, groupName+"/s/P")
		w.eventually(20*time.Second, "C1 is at 40", func() bool { return w.journal.times("C1", 40) > 0 })
		owner := w.journal.running()["C1"]
		w.erase(t, groupName+"/s/C1")
		w.eventually(owner.worker.Options().Interval+time.Second, "its owner has lost it", func() bool {
			return len(owner.saw(shard.ShardLost)) == 1
		})
		require.ErrorIs(t, owner.saw(shard.ShardLost)[0].Err, lease.ErrLost)
		w.eventually(3*hosts[0].worker.Options().Interval, "it runs again", func() bool { return w.journal.running()["C1"] != nil })
		w.eventually(30*time.Second, "all is done", func() bool { return w.journal.times("C1", 100) > 0 && w.journal.times("C2", 100) > 0 })
		for id, n := range w.journal.repeats() {
			require.LessOrEqual(t, n, 1, "%s goes on where it was", id)
		}
		w.sleep(2 * w.ttl)
		require.Equal(t, 1, w.journal.times("P", 1), "a finished shard is not processed again")
		list, err := shard.List(t.Context(), hosts[0].client, groupName)
		require.NoError(t, err)
		for _, st := range list {
			require.Equal(t, shard.IsFinished, st.State, "%+v", st)
		}
	})
}

// A record that nobody runs is deleted: nobody knows where to go on, so the shard stops until an operator says it.
func TestSH05_PositionUnknown(t *testing.T) {
	withDeletion(t, func(t *testing.T, w *world) {
		a := w.host(config{source: shard.Static("a")})
		w.sleep(5 * time.Second)
		require.NoError(t, a.stop())
		list, err := shard.List(t.Context(), a.client, groupName)
		require.NoError(t, err)
		w.erase(t, groupName+"/s/a")
		b := w.host(config{source: shard.Static("a")})
		w.sleep(3 * w.ttl)
		require.Len(t, b.saw(shard.RowLost), 1, "the alarm")
		require.Zero(t, w.journal.loads(b)[0])
		lost, err := shard.List(t.Context(), b.client, groupName)
		require.NoError(t, err)
		require.Equal(t, shard.IsParked, lost[0].State)
		require.Contains(t, lost[0].Parked, "its record was deleted")
		require.Greater(t, lost[0].Token, list[0].Token, "tokens grow over the deletion")
		require.ErrorIs(t, shard.Unpark(t.Context(), b.client, groupName, "a"), lease.ErrInvalid)
		require.NoError(t, shard.UnparkAt(t.Context(), b.client, groupName, "a", list[0].Position))
		w.eventually(w.ttl, "it runs again", func() bool { return w.journal.loads(b)[0] == 1 })
		w.sleep(w.ttl)
		require.Empty(t, w.journal.repeats())
	})
}

// A parent that is neither listed nor known is not taken for finished.
func TestUnknownParent(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		s := &stream{records: 5}
		s.add("C", "P")
		h := w.host(config{source: s, fn: s.read(func(string) {})})
		w.sleep(2 * w.ttl)
		require.True(t, w.journal.firstBegin("C").IsZero())
		require.ErrorContains(t, h.saw(shard.SourceFailed)[0].Err, `its parent "P" is not listed and has no record`)
		list, err := shard.List(t.Context(), h.client, groupName)
		require.NoError(t, err)
		require.Equal(t, shard.Waiting, list[0].State)
		s.add("P")
		w.eventually(2*time.Minute, "C has run", func() bool { return w.journal.times("C", 5) == 1 })
	})
}
