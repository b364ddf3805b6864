// Package stat is the little statistics that the scenarios need.
package stat

import (
	"slices"
	"time"
)

// Quantile is the value that a share q of all does not exceed, by the nearest rank. None has the quantile 0.
func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Fairness is Jain's index of how often each of several was served, relative to the best that so many can be shared out: with 30
// grants among 100 contenders most have none, however fair it is. 1 is the fairest; without any grant it is 0.
func Fairness(served []int) float64 {
	total := 0
	for _, n := range served {
		total += n
	}
	if total == 0 {
		return 0
	}
	even := make([]int, len(served))
	for i := range total {
		even[i%len(served)]++
	}
	return jain(served) / jain(even)
}

func jain(served []int) float64 {
	sum, squares := 0.0, 0.0
	for _, n := range served {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(served)) * squares)
}
