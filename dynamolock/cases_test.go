package dynamolock_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// staleReader answers every read that is not strongly consistent with what the item was a second ago.
type staleReader struct {
	s     *service
	mu    sync.Mutex
	past  []snapshot
	stale int // reads that were answered so
}

type snapshot struct {
	at   time.Time
	item map[string]map[string]any
}

func (x *staleReader) wrap(t *testing.T) func(http.RoundTripper) http.RoundTripper {
	t.Helper()
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			read := strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetItem")
			if read && !bytes.Contains(body, []byte(`"ConsistentRead":true`)) {
				return answer(r, http.StatusOK, x.ago(time.Second)), nil
			}
			resp, err := next.RoundTrip(r)
			if !read {
				x.remember(t)
			}
			return resp, err
		})
	}
}

func (x *staleReader) remember(t *testing.T) {
	t.Helper()
	it := x.s.item(t, "x")
	x.mu.Lock()
	defer x.mu.Unlock()
	x.past = append(x.past, snapshot{time.Now(), it})
}

func (x *staleReader) ago(d time.Duration) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stale++
	for _, s := range slices.Backward(x.past) {
		if time.Since(s.at) >= d {
			text, _ := json.Marshal(map[string]any{"Item": s.item}) //nolint:errchkjson // strings
			return string(text)
		}
	}
	return "{}"
}

// TestDY06_StaleReads: with reads that lag a second unless they ask for more, 200 cycles of three contenders see no false loss
// and no second holder, and a waiter gets a released lock within 1.5 s.
func TestDY06_StaleReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		x := &staleReader{s: s}
		var (
			mu      sync.Mutex
			holding int
			last    lease.Token
			freed   time.Time
			cycles  int
			wg      sync.WaitGroup
		)
		for range 3 {
			st, err := dynamolock.New(s.sdk(x.wrap(t)), table, nil)
			require.NoError(t, err)
			c := host{Store: st}.client(t, &lease.Options{TTL: 3 * time.Second})
			wg.Go(func() {
				for {
					mu.Lock()
					over := cycles >= 200
					mu.Unlock()
					if over {
						break
					}
					l, err := c.Acquire(t.Context(), "x")
					if err != nil {
						t.Errorf("acquire: %v", err)
						break
					}
					mu.Lock()
					holding++
					cycles++
					if holding != 1 || l.Token() <= last {
						t.Errorf("%d holders, token %d after %d", holding, l.Token(), last)
					}
					if waited := time.Since(freed); !freed.IsZero() && waited > 1500*time.Millisecond {
						t.Errorf("taken %v after the release", waited)
					}
					last = l.Token()
					mu.Unlock()
					time.Sleep(1200 * time.Millisecond) // a renewal at least
					if info, err := c.Inspect(t.Context(), "x"); err != nil || info.Token != l.Token() || info.State != lease.Held {
						t.Errorf("inspect: %+v, %v", info, err)
					}
					if err := l.Err(); err != nil {
						t.Errorf("a false loss: %v", err)
					}
					mu.Lock()
					holding--
					freed = time.Now()
					mu.Unlock()
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("release: %v", err)
					}
				}
				if err := c.Close(t.Context()); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		wg.Wait()
		require.GreaterOrEqual(t, cycles, 200)
		require.Zero(t, x.stale, "a read that decides was not strongly consistent")
	})
}

// TestDY07_WithoutProtection: two regions that copy the last write to each other grant one lock twice. The overwritten holder
// learns it at its next renewal, and a fence refuses an equal token of the other.
func TestDY07_WithoutProtection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r1, r2 := newService(t), newService(t)
		const ttl, lag = 6 * time.Second, 800 * time.Millisecond
		ca, cb := r1.host(t, nil).client(t, &lease.Options{TTL: ttl}), r2.host(t, nil).client(t, &lease.Options{TTL: ttl})
		a, err := ca.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		b, err := cb.TryAcquire(t.Context(), "x")
		require.NoError(t, err, "both regions grant the lock: that is why such tables are refused")
		time.Sleep(lag)
		r1.putItem(t, r2.item(t, "x")) // the last writer wins
		began := time.Now()
		<-a.Done()
		require.ErrorIs(t, a.Err(), lease.ErrLost)
		require.Less(t, time.Since(began), ttl/3+time.Second)
		require.NoError(t, b.Err())
		g, err := dynamolock.NewGuard(r1.sdk(nil), "guarded", nil)
		require.NoError(t, err)
		require.NoError(t, g.Put(t.Context(), "k", []byte("b"), b.Token(), b.Holder()))
		require.ErrorIs(t, g.Put(t.Context(), "k", []byte("a"), b.Token(), a.Holder()), lease.ErrStale)
		require.ErrorIs(t, ca.Close(t.Context()), nil)
		require.NoError(t, cb.Close(t.Context()))
	})
}

// TestDY08_BigNumbers: tokens up to 2^53-1 are exact everywhere and compared as numbers; at the end acquire fails, and a stored
// version above the range is not believed.
func TestDY08_BigNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		g, err := dynamolock.NewGuard(s.sdk(nil), "guarded", nil)
		require.NoError(t, err)
		seed := func(version string) {
			it := s.item(t, "x")
			it["version"] = map[string]any{"N": version}
			s.putItem(t, it)
		}
		h := s.host(t, nil)
		require.NoError(t, h.Release(t.Context(), try(t, h, "x", "0"), lease.Final{}))
		seed("9007199254740988")
		h = s.host(t, nil)
		for _, want := range []lease.Token{9007199254740989, 9007199254740990, 9007199254740991} {
			grant := try(t, h, "x", fmt.Sprint(want))
			require.Equal(t, want, grant.Token)
			require.Equal(t, fmt.Sprint(uint64(want)), fmt.Sprint(grant.Token), "no exponent")
			require.NoError(t, g.Put(t.Context(), "k", nil, grant.Token, grant.Holder))
			have, err := g.Get(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, want, have.Token)
			require.ErrorIs(t, g.Put(t.Context(), "k", nil, want-1, grant.Holder), lease.ErrStale)
			info, err := h.Inspect(t.Context(), "x")
			require.NoError(t, err)
			require.Equal(t, want, info.Token)
			_, err = s.host(t, nil).TryAcquire(t.Context(), request("x"))
			require.ErrorContains(t, err, fmt.Sprintf("token %d", uint64(want)))
			require.NoError(t, h.Release(t.Context(), grant, lease.Final{}))
		}
		before := s.item(t, "x")
		_, err = h.TryAcquire(t.Context(), request("x"))
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "used up")
		require.Equal(t, before, s.item(t, "x"))

		seed("1152921504606846976") // 2^60
		_, err = s.host(t, nil).TryAcquire(t.Context(), request("x"))
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "version")

		for _, pair := range [][2]lease.Token{{9, 10}, {99, 100}} {
			key := fmt.Sprint(pair)
			require.NoError(t, g.Put(t.Context(), key, nil, pair[1], "b"))
			err := g.Put(t.Context(), key, nil, pair[0], "a")
			stale, ok := errors.AsType[*fence.StaleError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, pair[1], stale.Seen)
		}
	})
}
