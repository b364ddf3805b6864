package bloblease_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

// delayed is a network with 5 ms of delay.
func delayed(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		time.Sleep(lease.Jitter(2500*time.Microsecond, 0.5))
		resp, err := next.RoundTrip(r)
		time.Sleep(lease.Jitter(2500*time.Microsecond, 0.5))
		return resp, err
	})
}

// contend lets some hosts acquire, hold and release one lock, again and again and at once, until it was granted so often. It
// returns what each was granted, the longest that each waited, how long the lock was free each time, and what was sent.
func contend(t *testing.T, o *bloblease.Options, hosts int, hold time.Duration, times int) (grants []int, waits, free []time.Duration, sent map[string]int) {
	t.Helper()
	grants, waits, sent = make([]int, hosts), make([]time.Duration, hosts), map[string]int{}
	s := newService()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		freed time.Time
	)
	for i := range hosts {
		count := &counter{}
		st, err := bloblease.New(s.sdk(t, func(wire http.RoundTripper) http.RoundTripper { return count.wrap(delayed(wire)) }), o)
		require.NoError(t, err)
		h := host{st, count}
		c := h.client(t, &lease.Options{Holder: fmt.Sprint("host", i)})
		wg.Go(func() {
			for ctx.Err() == nil {
				asked := time.Now()
				l, err := c.Acquire(ctx, "x")
				mu.Lock()
				waits[i] = max(waits[i], time.Since(asked))
				if err != nil {
					mu.Unlock()
					break
				}
				if !freed.IsZero() {
					free = append(free, time.Since(freed))
				}
				grants[i]++
				if len(free) == times {
					cancel()
				}
				mu.Unlock()
				time.Sleep(hold)
				if err := l.Release(context.WithoutCancel(ctx)); err != nil {
					t.Errorf("release: %v", err)
				}
				mu.Lock()
				freed = time.Now()
				mu.Unlock()
			}
			if err := c.Close(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("close: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for word := range strings.FieldsSeq(h.sent.take()) {
				sent[word]++
			}
		})
	}
	wg.Wait()
	return grants, waits, free, sent
}

// TestContention bounds what a hand-over costs where some want one lock again and again, with the options that are the default,
// and for how long anybody is passed over. With -v it prints the figures.
func TestContention(t *testing.T) {
	const tenth = 100 * time.Millisecond
	for _, tt := range []struct {
		name     string
		opt      bloblease.Options
		hosts    int
		hold     time.Duration
		times    int
		requests float64       // for a hand-over, at most
		median   time.Duration // of how long the lock is free, at most
		wait     time.Duration // of anybody, at most
	}{
		{"2 for 0.1 s", bloblease.Options{}, 2, tenth, 300, 6, 300 * time.Millisecond, 40 * time.Second},
		{"2 for 0.1 s, holders not told", bloblease.Options{NoHolder: true}, 2, tenth, 300, 6, 600 * time.Millisecond, 40 * time.Second},
		{"2 for 10 s", bloblease.Options{}, 2, 10 * time.Second, 20, 20, 1200 * time.Millisecond, 2 * time.Minute},
		{"20 for 0.1 s", bloblease.Options{}, 20, tenth, 600, 8, 300 * time.Millisecond, 90 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, 1)
			synctest.Test(t, func(t *testing.T) {
				grants, waits, free, sent := contend(t, &tt.opt, tt.hosts, tt.hold, tt.times)
				total := 0
				for _, n := range sent {
					total += n
				}
				each := float64(total) / float64(len(free))
				slices.Sort(free)
				t.Logf("%.2f requests, free for %v (median), %v (most), longest wait %v, grants %v, sent %v",
					each, free[len(free)/2], free[len(free)-1], slices.Max(waits), grants, sent)
				require.LessOrEqual(t, each, tt.requests)
				require.LessOrEqual(t, free[len(free)/2], tt.median)
				require.LessOrEqual(t, slices.Max(waits), tt.wait)
				require.Greater(t, slices.Min(grants), tt.times/tt.hosts/6)
			})
		})
	}
}
