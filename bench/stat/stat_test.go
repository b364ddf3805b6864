package stat_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bench/stat"
)

func TestFairness(t *testing.T) {
	for _, c := range []struct {
		served []int
		want   float64
	}{
		{[]int{5, 5, 5, 5}, 1},
		{[]int{20, 0, 0, 0}, 0.25},
		{[]int{1, 1, 0, 0}, 1}, // two grants cannot be shared out better
		{[]int{2, 0, 0, 0}, 0.5},
		{[]int{6, 5, 5, 5}, 1},
		{[]int{0, 0}, 0},
	} {
		require.InDelta(t, c.want, stat.Fairness(c.served), 1e-9, "%v", c.served)
	}
}

func TestQuantile(t *testing.T) {
	all := []time.Duration{30, 10, 20, 50, 40}
	require.Equal(t, time.Duration(30), stat.Quantile(all, 0.5))
	require.Equal(t, time.Duration(50), stat.Quantile(all, 0.95))
	require.Equal(t, []time.Duration{30, 10, 20, 50, 40}, all, "left as it was")
	require.Zero(t, stat.Quantile(nil, 0.5))
}
