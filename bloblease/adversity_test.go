package bloblease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

// before calls f before the first request of a kind is sent.
func before(kind string, f func()) func(http.RoundTripper) http.RoundTripper {
	var once sync.Once
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if word(r) == kind {
				once.Do(f)
			}
			return next.RoundTrip(r)
		})
	}
}

// kinds are the two ways to keep tokens, and the kind of request that a claim begins with.
var kinds = map[string]bloblease.Options{"number": {}, "note": {MetadataTokens: true}}

// requireStarted wants that an occurrence that must not run twice does not.
func requireStarted(t *testing.T, st *bloblease.Store, at int64) {
	t.Helper()
	info, err := st.Inspect(t.Context(), "job")
	require.NoError(t, err)
	require.Equal(t, at, info.Marks.Started)
	_, _, err = tryMarked(t, st, "again", at)
	require.ErrorIs(t, err, lease.ErrPassed)
}

// TestLookBetweenClaimAndLease: a store has seen a claim that was not leased yet. It was leased since, and its holder has started
// and died: operations on leases leave no trace in the ETag, so that what was seen must not be taken for what is.
func TestLookBetweenClaimAndLease(t *testing.T) {
	for _, o := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			now := time.Now().Unix()
			watcher := s.host(t, &o)
			st := newStore(t, s.sdk(t, before("acquire", func() {
				info, err := watcher.Inspect(t.Context(), "job")
				require.NoError(t, err)
				require.Zero(t, info.Marks)
			})), o)
			_, _, err := tryMarked(t, st, "dies", now)
			require.NoError(t, err)
			time.Sleep(time.Hour)
			g := try(t, watcher.Store, "job", "unmarked")
			require.NoError(t, watcher.Release(t.Context(), g, lease.Final{}))
			requireStarted(t, watcher.Store, now)
		})
	}
}

// TestSlowClaimOverAClaim: the same, and the claim of who has seen it is so slow on its way that the lease has ended before.
func TestSlowClaimOverAClaim(t *testing.T) {
	for first, o := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			now := time.Now().Unix()
			looked, leased := make(chan struct{}), make(chan struct{})
			dies := newStore(t, s.sdk(t, before("acquire", func() { <-looked })), o)
			slow := newStore(t, s.sdk(t, before(first, func() {
				close(looked)
				<-leased
				time.Sleep(time.Minute)
			})), o)
			go func() {
				defer close(leased)
				_, _, err := tryMarked(t, dies, "dies", now)
				require.NoError(t, err)
			}()
			synctest.Wait()
			r := request("job")
			r.Attempt = "slow"
			g, err := slow.TryAcquire(t.Context(), r)
			if err == nil {
				require.NoError(t, slow.Release(t.Context(), g, lease.Final{}))
			} else {
				require.ErrorIs(t, err, lease.ErrHeld)
			}
			requireStarted(t, slow, now)
		})
	}
}

// TestSlowClaim: between an attempt's look and its claim others have had the lock, and it is free again. The claim is refused by
// the version, or it would put a lower token over theirs.
func TestSlowClaim(t *testing.T) {
	for first, o := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			other := s.host(t, &o)
			require.NoError(t, other.Release(t.Context(), try(t, other.Store, "x", "first"), lease.Final{}))
			var last lease.Grant
			sent := &counter{}
			slowly := before(first, func() {
				for i := range 3 {
					last = try(t, other.Store, "x", fmt.Sprint("other ", i))
					require.NoError(t, other.Release(t.Context(), last, lease.Final{Value: []byte("theirs")}))
				}
			})
			st := newStore(t, s.sdk(t, func(next http.RoundTripper) http.RoundTripper { return sent.wrap(slowly(next)) }), o)
			_, err := st.TryAcquire(t.Context(), request("x"))
			require.ErrorIs(t, err, lease.ErrHeld, "it was overtaken")
			require.Equal(t, "head "+first, sent.take())
			info, err := st.Inspect(t.Context(), "x")
			require.NoError(t, err)
			require.Equal(t, last.Token, info.Token)
			require.Equal(t, "theirs", string(info.Value))
		})
	}
}

// TestSlowFloor: between an operator's look and write others have had the lock, with tokens above the floor.
func TestSlowFloor(t *testing.T) {
	for first, o := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			other := s.host(t, &o)
			g := try(t, other.Store, "x", "first")
			require.NoError(t, other.Release(t.Context(), g, lease.Final{}))
			floor := g.Token + 1
			op := newStore(t, s.sdk(t, before(first, func() {
				time.Sleep(time.Minute)
				g = try(t, other.Store, "x", "second")
				require.NoError(t, other.Release(t.Context(), g, lease.Final{}))
			})), o)
			require.NoError(t, op.RaiseFloor(t.Context(), "x", floor), "it is reached")
			require.Greater(t, g.Token, floor)
			info, err := op.Inspect(t.Context(), "x")
			require.NoError(t, err)
			require.Equal(t, g.Token, info.Token)
		})
	}
}

// TestClaimOverAClaim that was never leased, in time: its occurrence has not started, and what dies on the way to say so leaves
// it as started rather than have it run twice.
func TestClaimOverAClaim(t *testing.T) {
	for first, o := range kinds {
		for _, dies := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newService()
				now := time.Now().Unix()
				never := newStore(t, s.sdk(t, failing("acquire", http.StatusInternalServerError, "InternalError")), o)
				_, _, err := tryMarked(t, never, "never", now)
				requireClass(t, err, lease.ErrInDoubt)
				if dies {
					n := 0
					half := newStore(t, s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
						return roundTripper(func(r *http.Request) (*http.Response, error) {
							if w := word(r); w == "note" || w == first {
								if n++; n > 1 {
									return answer(r, http.StatusInternalServerError, "InternalError"), nil
								}
							}
							return next.RoundTrip(r)
						})
					}), o)
					_, _, err = tryMarked(t, half, "half", now)
					requireClass(t, err, lease.ErrInDoubt)
					requireStarted(t, s.host(t, &o).Store, now)
					return
				}
				h := s.host(t, &o)
				_, g, err := tryMarked(t, h.Store, "next", now)
				require.NoError(t, err)
				require.Equal(t, now, g.Marks.Running)
			})
		}
	}
}

// TestGatewaysClock: a gateway that answers for the service has a clock of its own, which must not get into tokens.
func TestGatewaysClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var broken atomic.Bool
		st := storeOn(t, s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if !broken.Load() {
					return next.RoundTrip(r)
				}
				resp := answer(r, http.StatusBadGateway, "")
				resp.Header = http.Header{"Date": {time.Now().AddDate(50, 0, 0).UTC().Format(http.TimeFormat)}}
				return resp, nil
			})
		}))
		g := try(t, st, "x", "1")
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		broken.Store(true)
		_, err := st.Inspect(t.Context(), "x")
		requireClass(t, err, lease.ErrUnavailable)
		broken.Store(false)
		g = try(t, st, "x", "2")
		require.Less(t, int64(g.Token), time.Now().Add(time.Hour).UnixMilli())
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
	})
}

// TestNewBlobIsAheadOfAllFrontEnds: a blob is deleted whose token came by a front end with a fast clock, and made anew by one
// with a slow clock. The next token is higher all the same.
func TestNewBlobIsAheadOfAllFrontEnds(t *testing.T) {
	for _, o := range kinds {
		for part := range 10 {
			synctest.Test(t, func(t *testing.T) {
				s := newService()
				h := s.host(t, &o)
				require.NoError(t, h.Release(t.Context(), try(t, h.Store, "x", "made"), lease.Final{}))
				time.Sleep(time.Hour + time.Duration(part)*100*time.Millisecond)
				s.offset = time.Second
				g := try(t, s.host(t, &o).Store, "x", "fast")
				require.True(t, s.Delete(locks, "cloudlease/locks/x"))
				s.offset = -time.Second
				next := try(t, s.host(t, &o).Store, "x", "slow")
				require.Greater(t, next.Token, g.Token)
			})
		}
	}
}

// TestBreakAnswerLost: the second try keeps the reason that the first could not.
func TestBreakAnswerLost(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		st := storeOn(t, sdk(nil))
		lost := false
		op := storeOn(t, sdk(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if word(r) == "break" && !lost {
					lost = true
					return answer(r, http.StatusInternalServerError, "OperationTimedOut"), resp.Body.Close()
				}
				return resp, err
			})
		}))
		g := try(t, st, "x", "1")
		requireClass(t, op.Break(t.Context(), "x", g.Token, why), lease.ErrInDoubt)
		requireClass(t, op.Break(t.Context(), "x", g.Token+1, why), lease.ErrConflict)
		require.NoError(t, op.Break(t.Context(), "x", g.Token, why))
		info, err := op.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, lease.Free, info.State)
		require.Equal(t, why.By, info.Broken.By)
		requireClass(t, op.Break(t.Context(), "x", g.Token, why), lease.ErrConflict)
	})
}

// TestClaimsDoNotStarveEachOther: of many who want a lock, and whose claims can overtake each other, one has it soon after it
// was freed, whoever comes.
func TestClaimsDoNotStarveEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var mu sync.Mutex
		var freed time.Time
		var longest time.Duration
		grants := 0
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 100 {
			st := storeOn(t, s.sdk(t, jittered(rand.New(rand.NewPCG(1, uint64(i)))))) //nolint:gosec // repeatable on purpose
			c := host{st, nil}.client(t, &lease.Options{TTL: bloblease.MinTTL})
			wg.Go(func() {
				defer func() { _ = c.Close(t.Context()) }() // its wait may have ended in mid-flight
				for ctx.Err() == nil {
					l, err := c.Acquire(ctx, "x")
					if err != nil {
						return
					}
					mu.Lock()
					if grants++; !freed.IsZero() {
						longest = max(longest, time.Since(freed))
					}
					mu.Unlock()
					time.Sleep(20 * time.Millisecond)
					mu.Lock()
					freed = time.Now()
					mu.Unlock()
					_ = l.Release(ctx)
				}
			})
		}
		wg.Wait()
		t.Log(fmt.Sprint(grants, " grants, the lock was free for up to ", longest))
		require.Less(t, longest, 3*time.Second)
		require.Greater(t, grants, 30)
	})
}

// jittered takes 3 to 30 ms for each way of a request.
func jittered(r *rand.Rand) func(http.RoundTripper) http.RoundTripper {
	var mu sync.Mutex
	pause := func() {
		mu.Lock()
		d := 3*time.Millisecond + time.Duration(r.ExpFloat64()*5*float64(time.Millisecond))
		mu.Unlock()
		time.Sleep(min(d, 30*time.Millisecond))
	}
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			pause()
			defer pause()
			return next.RoundTrip(r)
		})
	}
}
