package dynamolock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// seeds is how many random schedules are tried; 140 took two minutes without a finding.
const seeds = 10

// TestOneHolderUnderRandomFaults: three hosts, lost, late and duplicated messages, front ends that differ, clocks that are wrong,
// and an operator; never two holders at one instant, and the stored tokens grow.
func TestOneHolderUnderRandomFaults(t *testing.T) {
	for seed := range int64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fuzzOne(t, seed) })
		})
	}
}

func fuzzOne(t *testing.T, seed int64) {
	operators := seed%2 == 0
	var mu sync.Mutex
	rng := rand.New(rand.NewSource(seed))
	pick := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.Intn(n) }
	s := newService(t)
	var order sync.Mutex
	var stored uint64
	inner := s.handler
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order.Lock()
		defer order.Unlock()
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r)
		var out struct{ Attributes map[string]map[string]any }
		if rec.Code == 200 && json.Unmarshal(rec.Body.Bytes(), &out) == nil && out.Attributes["version"] != nil {
			v, _ := strconv.ParseUint(fmt.Sprint(out.Attributes["version"]["N"]), 10, 64)
			if v <= stored {
				t.Errorf("stored token %d after %d", v, stored)
			}
			stored = v
		}
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
	time.Sleep(time.Duration(pick(1000)) * time.Millisecond)
	var calm atomic.Bool
	var flying sync.WaitGroup
	wrap := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(r.Body)
			send := func(ctx context.Context) (*http.Response, error) {
				c := r.Clone(ctx)
				c.Body = io.NopCloser(bytes.NewReader(body))
				resp, err := next.RoundTrip(c)
				if err == nil {
					resp.Header.Set("Date", time.Now().Add(time.Duration(pick(1001))*time.Millisecond).UTC().Format(http.TimeFormat))
				}
				return resp, err
			}
			if calm.Load() {
				return send(r.Context())
			}
			before := time.Duration(pick(60)) * time.Millisecond
			after := time.Duration(pick(60)) * time.Millisecond
			lose := pick(12)
			if pick(15) == 0 {
				before = time.Duration(pick(6000)) * time.Millisecond
			}
			if pick(15) == 0 {
				after = time.Duration(pick(3000)) * time.Millisecond
			}
			dup := pick(20) == 0
			type ans struct {
				r   *http.Response
				err error
			}
			ch := make(chan ans, 1)
			flying.Go(func() {
				time.Sleep(before)
				if lose == 0 {
					ch <- ans{nil, &net.OpError{Op: "read", Err: syscall.ECONNRESET}}
					return
				}
				resp, err := send(context.WithoutCancel(r.Context())) //nolint:bodyclose // the caller of this transport closes it
				if dup {
					flying.Go(func() {
						time.Sleep(time.Duration(pick(5000)) * time.Millisecond)
						if resp, err := send(context.WithoutCancel(r.Context())); err == nil {
							_ = resp.Body.Close()
						}
					})
				}
				time.Sleep(after)
				if lose == 1 {
					ch <- ans{nil, &net.OpError{Op: "read", Err: syscall.ECONNRESET}}
					return
				}
				ch <- ans{resp, err}
			})
			select {
			case a := <-ch:
				return a.r, a.err
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
	}
	type hostT struct {
		clock *leasetest.Clock
		c     *lease.Client
		l     atomic.Pointer[lease.Lease]
	}
	var hosts []*hostT
	for i := range 3 {
		h := &hostT{clock: leasetest.NewClock()}
		h.clock.StepWall(time.Duration(pick(1000)-500) * time.Minute)
		st, err := dynamolock.New(s.sdk(wrap), table, &dynamolock.Options{Clock: h.clock.Now})
		require.NoError(t, err)
		h.c, err = lease.New(st, &lease.Options{TTL: time.Duration(2+pick(5)) * time.Second, Holder: fmt.Sprint("h", i), Observer: lease.ObserverFunc(func(lease.Event) {})})
		require.NoError(t, err)
		hosts = append(hosts, h)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var last atomic.Uint64
	grants := atomic.Int64{}
	for _, h := range hosts {
		wg.Go(func() {
			for ctx.Err() == nil {
				actx, acancel := context.WithTimeout(ctx, time.Duration(pick(8000))*time.Millisecond)
				var l *lease.Lease
				var err error
				if pick(2) == 0 {
					l, err = h.c.Acquire(actx, "x")
				} else {
					l, err = h.c.TryAcquire(actx, "x")
				}
				acancel()
				if err != nil {
					time.Sleep(time.Duration(pick(1500)) * time.Millisecond)
					continue
				}
				grants.Add(1)
				if l.Err() == nil && !operators {
					for {
						old := last.Load()
						if uint64(l.Token()) <= old {
							t.Errorf("token %d after %d", l.Token(), old)
							break
						}
						if last.CompareAndSwap(old, uint64(l.Token())) {
							break
						}
					}
				}
				h.l.Store(l)
				time.Sleep(time.Duration(pick(4000)) * time.Millisecond)
				if pick(3) == 0 {
					_ = l.Save(ctx, []byte("v"))
				}
				if pick(4) != 0 {
					_ = l.Release(ctx)
				} else {
					select { // let it go on until lost or some time
					case <-l.Done():
					case <-time.After(time.Duration(pick(10000)) * time.Millisecond):
						_ = l.Release(ctx)
					}
				}
			}
		})
	}
	for _, h := range hosts { // trouble at any time, one kind a host
		kind := pick(3)
		wg.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(pick(3000)) * time.Millisecond)
				switch kind {
				case 0:
					h.clock.StepWall(time.Duration(pick(20000)-10000) * time.Millisecond)
				case 1:
					h.clock.FreezeMono(true)
					time.Sleep(time.Duration(pick(5000)) * time.Millisecond)
					h.clock.FreezeMono(false)
				case 2:
					h.clock.FreezeWall(true)
					time.Sleep(time.Duration(pick(5000)) * time.Millisecond)
					h.clock.FreezeWall(false)
				}
			}
		})
	}
	if operators {
		op := s.host(t, nil)
		wg.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(pick(4000)) * time.Millisecond)
				info, err := op.Inspect(ctx, "x")
				if err != nil {
					continue
				}
				switch pick(2) {
				case 0:
					_ = op.Break(ctx, "x", info.Token, why)
				case 1:
					_ = op.RaiseFloor(ctx, "x", info.Token+lease.Token(pick(20000)))
				}
			}
		})
	}
	end := time.Now().Add(3 * time.Minute)
	for time.Now().Before(end) && !t.Failed() {
		time.Sleep(7 * time.Millisecond)
		n := 0
		for _, h := range hosts {
			if l := h.l.Load(); l != nil && l.Err() == nil {
				n++
			}
		}
		if n > 1 && !operators {
			for i, h := range hosts {
				if l := h.l.Load(); l != nil {
					t.Logf("host %d token %d err %v deadline in %v", i, l.Token(), l.Err(), l.Deadline().Sub(h.clock.Now().Wall))
				}
			}
			t.Errorf("%d holders", n)
		}
	}
	cancel()
	wg.Wait()
	calm.Store(true)
	for _, h := range hosts {
		_ = h.c.Close(context.Background())
	}
	flying.Wait()
	if grants.Load() < 5 {
		t.Logf("only %d grants", grants.Load())
	}
}
