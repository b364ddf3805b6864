package shard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// Ten live and six finished shards: those do not count as load, nothing goes back and forth, and a settled fleet is at rest.
func TestSH03_Balance(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		all := ids(16)
		finishing := func(h *host) shard.Func {
			return func(ctx context.Context, s *shard.Shard) error {
				if s.ID() >= all[10] {
					return s.Finish(ctx)
				}
				return h.process(ctx, s)
			}
		}
		c := config{source: shard.Static(all...), fn: finishing}
		var hosts []*host
		for range 4 {
			hosts = append(hosts, w.host(c))
			time.Sleep(time.Second)
		}
		even := func(of ...*host) func() bool {
			return func() bool {
				sum := 0
				loads := w.journal.loads(of...)
				for _, n := range loads {
					sum += n
				}
				return sum == 10 && spread(loads) <= 1
			}
		}
		atRest := func(of ...*host) {
			time.Sleep(max(30*time.Second, w.ttl))
			settled := time.Now()
			time.Sleep(30 * time.Second)
			require.Zero(t, w.journal.moves(settled), "no move in a settled fleet")
			require.True(t, even(of...)())
		}
		w.eventually(3*w.ttl, "four are even", even(hosts...))
		atRest(hosts...)

		joined := time.Now()
		hosts = append(hosts, w.host(c))
		took := w.eventually(3*w.ttl, "five are even", even(hosts...))
		t.Logf("even %v after the join", took)
		atRest(hosts...)
		require.Equal(t, []int{2, 2, 2, 2, 2}, w.journal.loads(hosts...))
		require.LessOrEqual(t, w.journal.moves(joined), 3)

		hosts[0].kill()
		took = w.eventually(w.takeover(), "four are even", even(hosts[1:]...))
		t.Logf("even %v after the death", took)
		atRest(hosts[1:]...)
	})
}

func TestSH03_BadIntervals(t *testing.T) {
	w := newWorld(t, backends[0])
	c, err := lease.New(w.connect(lease.SystemClock), &lease.Options{TTL: 6 * time.Second})
	require.NoError(t, err)
	_, err = shard.New(c, groupName, shard.Static("a"), &shard.Options{Interval: 3 * time.Second})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "interval 3s is not below half of the TTL 6s")
	_, err = shard.New(c, groupName, shard.Static("a"), &shard.Options{Interval: 3*time.Second - 1})
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
}

// Workers with a limit take no more, and what they leave goes to the others.
func TestLimits(t *testing.T) {
	inMemory(t, func(t *testing.T, w *world) {
		source := shard.Static(ids(10)...)
		a := w.host(config{source: source, opt: shard.Options{MaxShards: 2}})
		time.Sleep(2 * w.ttl)
		require.Equal(t, []int{2}, w.journal.loads(a))
		b := w.host(config{source: source})
		w.eventually(3*w.ttl, "the other has the rest", func() bool { return w.journal.loads(b)[0] == 8 })
		require.Equal(t, []int{2}, w.journal.loads(a))
		c := w.host(config{source: source, opt: shard.Options{MaxShards: 3}})
		w.eventually(3*w.ttl, "as even as the limits allow", func() bool { return w.journal.loads(b)[0] == 5 && w.journal.loads(c)[0] == 3 })
		require.Equal(t, []int{2}, w.journal.loads(a))
	})
}

// Many workers that start at once all get in, and share.
func TestManyStartAtOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		source := shard.Static(ids(40)...)
		var hosts []*host
		for range 20 {
			hosts = append(hosts, w.host(config{source: source}))
		}
		took := w.eventually(3*w.ttl, "two each", func() bool {
			loads := w.journal.loads(hosts...)
			return spread(loads) == 0 && loads[0] == 2
		})
		t.Logf("even %v after the start", took)
		time.Sleep(w.ttl)
	})
}
