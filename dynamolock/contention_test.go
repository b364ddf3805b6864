package dynamolock_test

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

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/lease"
)

// crowd is a number of hosts that want one lock again and again: each acquires, holds, releases and asks anew.
type crowd struct {
	hosts  int
	hold   func(host, round int) time.Duration
	rounds int           // hand-overs to see, from the first on
	think  time.Duration // between a release and the next acquire
	fresh  bool          // every acquire is that of a new process
}

func always(d time.Duration) func(int, int) time.Duration {
	return func(int, int) time.Duration { return d }
}

// seen is what a crowd did.
type seen struct {
	grants       []int           // of each host
	handOvers    []time.Duration // from a release to the next grant
	waits        []time.Duration
	reads, sent  int
	own          int // hand-overs of a host to itself
	busiestHost  int // requests of one host in a second
	busiestCrowd int // requests of all in a second
	lasted       time.Duration
}

func (x *seen) perHandOver() float64 { return float64(x.sent) / float64(len(x.handOvers)) }

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[int(q*float64(len(d)-1))].Round(time.Millisecond)
}

// jain is 1 if all had the same share, and 1/n if one had all.
func (x *seen) jain() float64 {
	var sum, squares float64
	for _, n := range x.grants {
		sum += float64(n)
		squares += float64(n * n)
	}
	return sum * sum / squares / float64(len(x.grants))
}

func (x *seen) String() string {
	return fmt.Sprintf("%5.2f requests, %5.2f reads, hand-over %6v median %6v p95 %6v most, jain %.2f, longest wait %6v (median %v), own %.2f, in a second %d of one, %d of all; %v",
		x.perHandOver(), float64(x.reads)/float64(len(x.handOvers)), quantile(x.handOvers, 0.5), quantile(x.handOvers, 0.95), quantile(x.handOvers, 1),
		x.jain(), quantile(x.waits, 1), quantile(x.waits, 0.5), float64(x.own)/float64(len(x.handOvers)), x.busiestHost, x.busiestCrowd, x.lasted.Round(time.Second))
}

// wire is a network with 5 ms of delay that tells of each request.
func wire(told func(op string)) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
			told(op)
			time.Sleep(lease.Jitter(2500*time.Microsecond, 0.5))
			resp, err := next.RoundTrip(r)
			time.Sleep(lease.Jitter(2500*time.Microsecond, 0.5))
			return resp, err
		})
	}
}

// run lets the crowd work in virtual time.
func (c crowd) run(t *testing.T, seed uint64) *seen {
	t.Helper()
	x := &seen{grants: make([]int, c.hosts)}
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		require.NoError(t, s.host(t, nil).Release(t.Context(), crash(t, s, "x", 30*time.Second), lease.Final{}))
		var (
			mu    sync.Mutex
			wg    sync.WaitGroup
			freed time.Time
			owner = -1
			began = time.Now()
			all   = map[int]int{}
			each  = map[[2]int]int{}
		)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range c.hosts {
			process := func() (*lease.Client, error) {
				st, err := dynamolock.New(s.sdk(wire(func(op string) {
					mu.Lock()
					defer mu.Unlock()
					if ctx.Err() != nil {
						return
					}
					x.sent++
					if op == "GetItem" {
						x.reads++
					}
					at := int(time.Since(began) / time.Second)
					all[at]++
					each[[2]int{i, at}]++
				})), table, nil)
				if err != nil {
					return nil, err
				}
				return lease.New(st, &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
			}
			wg.Go(func() {
				cl, err := process()
				for round := 0; err == nil && ctx.Err() == nil; round++ {
					if c.fresh && round > 0 {
						_ = cl.Close(context.WithoutCancel(ctx))
						if cl, err = process(); err != nil {
							break
						}
					}
					asked := time.Now()
					l, err := cl.Acquire(ctx, "x")
					if err != nil { // the crowd has done its work
						mu.Lock()
						x.waits = append(x.waits, time.Since(asked))
						mu.Unlock()
						break
					}
					mu.Lock()
					if !freed.IsZero() {
						x.handOvers = append(x.handOvers, time.Since(freed))
						if owner == i {
							x.own++
						}
					}
					x.waits = append(x.waits, time.Since(asked))
					x.grants[i]++
					owner = i
					if len(x.handOvers) == c.rounds {
						x.lasted = time.Since(began)
						cancel()
					}
					mu.Unlock()
					time.Sleep(c.hold(i, round))
					if err := l.Release(context.WithoutCancel(ctx)); err != nil {
						t.Errorf("release: %v", err)
					}
					mu.Lock()
					freed = time.Now()
					mu.Unlock()
					time.Sleep(c.think)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if err := cl.Close(context.WithoutCancel(ctx)); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		wg.Wait()
		for _, n := range all {
			x.busiestCrowd = max(x.busiestCrowd, n)
		}
		for _, n := range each {
			x.busiestHost = max(x.busiestHost, n)
		}
	})
	return x
}

// TestContention lets crowds of several sizes contend for one lock with the options that are the default, and bounds what a
// hand-over costs and takes. With -v it prints the figures.
func TestContention(t *testing.T) {
	const tenth = 100 * time.Millisecond
	changing := func(_, round int) time.Duration {
		if round%20 < 10 {
			return tenth
		}
		return 2 * time.Second
	}
	for _, tt := range []struct {
		name string
		crowd
		seeds    uint64
		requests float64       // for a hand-over, at most
		median   time.Duration // of a hand-over, at most
		wait     time.Duration // of anybody, at most
	}{
		{"2 for 0.1 s", crowd{hosts: 2, hold: always(tenth), rounds: 200}, 2, 4, 300 * time.Millisecond, 15 * time.Second},
		{"2 for 1 s", crowd{hosts: 2, hold: always(time.Second), rounds: 50}, 1, 6, 400 * time.Millisecond, 30 * time.Second},
		{"2 for 10 s", crowd{hosts: 2, hold: always(10 * time.Second), rounds: 20}, 1, 16, 900 * time.Millisecond, 2 * time.Minute},
		{"2 for 5 min", crowd{hosts: 2, hold: always(5 * time.Minute), rounds: 4}, 1, 350, 1200 * time.Millisecond, 20 * time.Minute},
		{"5 for 0.1 s", crowd{hosts: 5, hold: always(tenth), rounds: 300}, 1, 4, 300 * time.Millisecond, time.Minute},
		{"20 for 0.1 s", crowd{hosts: 20, hold: always(tenth), rounds: 600}, 3, 4, 300 * time.Millisecond, 90 * time.Second},
		{"20 for 0.1 s, fresh processes", crowd{
			hosts: 20, hold: always(tenth), rounds: 400, fresh: true, think: 500 * time.Millisecond,
		}, 1, 4.5, 300 * time.Millisecond, 2 * time.Minute},
		{"20 for 1 s", crowd{hosts: 20, hold: always(time.Second), rounds: 100}, 1, 15, 300 * time.Millisecond, 5 * time.Minute},
		{"20 for 0.1 s and 2 s by turns", crowd{hosts: 20, hold: changing, rounds: 300}, 1, 15, 300 * time.Millisecond, 6 * time.Minute},
		{"100 for 0.1 s", crowd{hosts: 100, hold: always(tenth), rounds: 800}, 1, 8, 300 * time.Millisecond, 4 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sum := 0.0
			for seed := range tt.seeds {
				x := tt.run(t, seed+1)
				t.Logf("%-30s %v", tt.name, x)
				sum += x.perHandOver()
				require.LessOrEqual(t, quantile(x.handOvers, 0.5), tt.median)
				require.LessOrEqual(t, quantile(x.waits, 1), tt.wait)
				require.LessOrEqual(t, x.busiestHost, 30, "in a second")
			}
			require.LessOrEqual(t, sum/float64(tt.seeds), tt.requests)
		})
	}
}

// TestCrowdThatGoes: fifty want the lock once. Those who are left at the end do not wait as if all were still there.
func TestCrowdThatGoes(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			sent int
		)
		began := time.Now()
		for range 50 {
			wg.Go(func() {
				st, err := dynamolock.New(s.sdk(wire(func(string) { mu.Lock(); sent++; mu.Unlock() })), table, nil)
				if err != nil {
					t.Error(err)
					return
				}
				c := host{Store: st}.client(t, nil)
				if err := c.Do(t.Context(), "x", func(context.Context, *lease.Lease) error {
					time.Sleep(200 * time.Millisecond)
					return nil
				}); err != nil {
					t.Error(err)
				}
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		t.Logf("%v, %d requests", time.Since(began), sent)
		require.Less(t, time.Since(began), 40*time.Second)
		require.Less(t, sent, 50*12)
	})
}

// TestDeadLockIsFoundAtOnce: a caller that comes 2 s after the end of a dead holder's lease, or later, needs two requests.
func TestDeadLockIsFoundAtOnce(t *testing.T) {
	for _, after := range []time.Duration{2 * time.Second, 2500 * time.Millisecond, time.Minute} {
		for _, warm := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				g := crash(t, s, "x", 30*time.Second)
				sent := 0
				st, err := dynamolock.New(s.sdk(wire(func(string) { sent++ })), table, nil)
				require.NoError(t, err)
				if warm {
					time.Sleep(25 * time.Second)
					_, err := st.Inspect(t.Context(), "other")
					require.NoError(t, err)
				}
				c := host{Store: st}.client(t, nil)
				time.Sleep(time.Until(g.Expires.Add(after)))
				sent = 0
				began := time.Now()
				l, err := c.Acquire(t.Context(), "x")
				took := time.Since(began)
				if err == nil {
					err = l.Release(t.Context())
				}
				require.NoError(t, err)
				require.NoError(t, c.Close(t.Context()))
				require.LessOrEqual(t, sent-1, 2, "and the release")
				require.LessOrEqual(t, took, 1500*time.Millisecond)
			})
		}
	}
}

// TestWaitersOfADeadHolder: those who wait already take over soon after the end, and look one after the other.
func TestWaitersOfADeadHolder(t *testing.T) {
	for _, hosts := range []int{1, 20, 200} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t)
			g := crash(t, s, "x", 30*time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			var (
				wg   sync.WaitGroup
				mu   sync.Mutex
				took time.Duration
				late int // requests from the end on until it was taken
			)
			for range hosts {
				st, err := dynamolock.New(s.sdk(wire(func(string) {
					mu.Lock()
					defer mu.Unlock()
					if took == 0 && time.Now().After(g.Expires.Add(time.Second)) {
						late++
					}
				})), table, nil)
				require.NoError(t, err)
				c := host{Store: st}.client(t, nil)
				wg.Go(func() {
					if l, err := c.Acquire(ctx, "x"); err == nil {
						mu.Lock()
						took = time.Since(g.Expires)
						mu.Unlock()
						cancel()
						_ = l.Release(t.Context())
					}
					_ = c.Close(t.Context())
				})
			}
			wg.Wait()
			cancel()
			t.Logf("%d: after %v, %d requests", hosts, took, late)
			require.Greater(t, took, time.Second)
			require.Less(t, took, 3500*time.Millisecond)
			require.LessOrEqual(t, late, 2+hosts*2)
		})
	}
}
