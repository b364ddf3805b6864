package shard_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/cloudlease/cloudlease/shard"
)

func TestQuotas(t *testing.T) {
	for _, c := range []struct {
		name  string
		loads []shard.Load
		live  int
		want  []int
	}{
		{"nobody", nil, 5, []int{}},
		{"one has all", []shard.Load{{Owned: 0}}, 5, []int{5}},
		{"a newcomer", []shard.Load{{Owned: 4}, {Owned: 4}, {}}, 8, []int{3, 3, 2}},
		{"the odd ones stay where they are", []shard.Load{{Owned: 2}, {Owned: 3}, {Owned: 2}}, 7, []int{2, 3, 2}},
		{"one apart is even", []shard.Load{{Owned: 1}, {Owned: 2}, {Owned: 2}}, 5, []int{1, 2, 2}},
		{"two apart is not", []shard.Load{{Owned: 0}, {Owned: 2}, {Owned: 2}}, 4, []int{1, 2, 1}},
		{"limits", []shard.Load{{Limit: 2}, {}, {Limit: 3}}, 10, []int{2, 5, 3}},
		{"limits below the even share", []shard.Load{{Limit: 1}, {Limit: 1}}, 10, []int{1, 1}},
		{"more than it may have", []shard.Load{{Owned: 5, Limit: 2}, {}}, 5, []int{2, 3}},
		{"fewer shards than workers", []shard.Load{{}, {Owned: 1}, {}, {}}, 2, []int{1, 1, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, shard.Quotas(c.loads, c.live)) })
	}
}

// Whatever the loads: nobody has more than the limit, everything is given out that can be, the rest is even, nothing moves that need
// not, and a plan that was carried out asks for nothing more.
func TestQuotasProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) shard.Load {
			return shard.Load{Owned: rapid.IntRange(0, 60).Draw(t, "owned"), Limit: rapid.SampledFrom([]int{0, 0, 0, 1, 7, 40}).Draw(t, "limit")}
		}), 1, 40).Draw(t, "loads")
		owned := 0
		for _, l := range loads {
			owned += l.Owned
		}
		live := owned + rapid.IntRange(0, 100).Draw(t, "free")
		got := shard.Quotas(loads, live)
		sum, room, limited := 0, 0, true
		var free []int // quotas of those who are below their limit
		for i, q := range got {
			sum += q
			if l := loads[i].Limit; l > 0 {
				require.LessOrEqual(t, q, l)
				room += l
				if q < l {
					free = append(free, q)
				}
			} else {
				limited = false
				free = append(free, q)
			}
		}
		want := live
		if limited {
			want = min(live, room)
		}
		require.Equal(t, want, sum)
		if len(free) > 0 {
			require.LessOrEqual(t, slices.Max(got)-slices.Min(free), 1)
		}
		after := slices.Clone(loads)
		for i, q := range got {
			after[i].Owned = q
		}
		require.Equal(t, got, shard.Quotas(after, live), "a settled fleet is at rest")
		require.Equal(t, fewest(loads, got), moves(loads, got))
	})
}

// moves is how many shards leave their owner.
func moves(loads []shard.Load, q []int) (n int) {
	for i, l := range loads {
		n += max(0, l.Owned-q[i])
	}
	return n
}

// fewest is the least number of moves of any plan with the same numbers among those who may have them: the highest to those who
// have most.
func fewest(loads []shard.Load, q []int) int {
	level := slices.Max(q)
	order := make([]int, 0, len(q)) // those who could have either number
	fixed := 0
	var numbers []int
	for i := range q {
		if q[i] >= level-1 && (loads[i].Limit == 0 || loads[i].Limit >= level) {
			order = append(order, loads[i].Owned)
			numbers = append(numbers, q[i])
			continue
		}
		fixed += max(0, loads[i].Owned-q[i])
	}
	slices.Sort(order)
	slices.Sort(numbers)
	for i := range order {
		fixed += max(0, order[i]-numbers[i])
	}
	return fixed
}

// A newcomer's join moves at most its share; a death moves nothing but the dead worker's shards.
func TestJoinAndDeathMoveLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 60).Draw(t, "workers")
		live := rapid.IntRange(0, 2000).Draw(t, "live")
		even := func(n int, q []int) []shard.Load {
			out := make([]shard.Load, n)
			for i := range min(n, len(q)) {
				out[i].Owned = q[i]
			}
			return out
		}
		settled := even(workers, shard.Quotas(make([]shard.Load, workers), live))
		joined := append(slices.Clone(settled), shard.Load{})
		q := shard.Quotas(joined, live)
		require.Equal(t, q[workers], moves(joined, q))
		if workers > 1 {
			dead := rapid.IntRange(0, workers-1).Draw(t, "dead")
			rest := slices.Delete(slices.Clone(settled), dead, dead+1)
			require.Zero(t, moves(rest, shard.Quotas(rest, live)))
		}
	})
}

// Workers who look at the same time pick different shards, and together all that they lack.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lacks := rapid.SliceOfN(rapid.IntRange(-3, 9), 0, 20).Draw(t, "lacks")
		free := make([]string, rapid.IntRange(0, 50).Draw(t, "free"))
		for i := range free {
			free[i] = fmt.Sprint(i)
		}
		sum := 0
		var dealt []string
		for i, n := range lacks {
			sum += max(n, 0)
			got := shard.Shares(free, lacks, i)
			require.LessOrEqual(t, len(got), max(n, 0))
			dealt = append(dealt, got...)
		}
		require.Len(t, dealt, min(sum, len(free)))
		require.Equal(t, free[:len(dealt)], append([]string{}, dealt...))
	})
}
