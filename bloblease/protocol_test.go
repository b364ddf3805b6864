package bloblease_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

func try(t *testing.T, st *bloblease.Store, name, attempt string) lease.Grant {
	t.Helper()
	r := request(name)
	r.Attempt, r.Since = attempt, st.Clock()()
	g, err := st.TryAcquire(t.Context(), r)
	require.NoError(t, err)
	return g
}

// TestRaces: a hundred for one lock, from one process and from many; and thirty for a name that nobody has had.
func TestRaces(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		shared := storeOn(t, sdk(nil))
		last := map[string]lease.Token{}
		for round := range 6 {
			racers, name := 100, "x"
			if round%3 == 2 {
				racers, name = 30, fmt.Sprint("new", round)
			}
			stores := make([]*bloblease.Store, racers)
			for i := range stores {
				stores[i] = shared
				if round%2 == 1 || racers == 30 {
					stores[i] = storeOn(t, sdk(nil))
				}
			}
			winner, g := race(t, stores, name, round)
			require.Greater(t, g.Token, last[name])
			last[name] = g.Token
			require.NoError(t, stores[winner].Release(t.Context(), g, lease.Final{}))
		}
	})
}

// race lets every store try at once. Exactly one is granted the lock, and all others are told that it is held.
func race(t *testing.T, stores []*bloblease.Store, name string, round int) (winner int, g lease.Grant) {
	t.Helper()
	grants, errs := make([]lease.Grant, len(stores)), make([]error, len(stores))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, st := range stores {
		wg.Go(func() {
			r := request(name)
			r.Attempt = fmt.Sprint(round, " ", i)
			<-start
			grants[i], errs[i] = st.TryAcquire(t.Context(), r)
		})
	}
	close(start)
	wg.Wait()
	winner = -1
	for i, err := range errs {
		if err != nil {
			require.ErrorIs(t, err, lease.ErrHeld)
			continue
		}
		require.Equal(t, -1, winner, "two were granted the lock")
		winner = i
	}
	require.NotEqual(t, -1, winner, "nobody was granted the lock")
	return winner, grants[winner]
}

// TestClaimedOver: a claim that another has claimed over is not leased, whether or not the other came as far as its lease.
func TestClaimedOver(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			other := s.host(t, nil).Store
			if dies {
				other = s.refused(t, "acquire", http.StatusInternalServerError, "InternalError")
			}
			claimed := false
			st, err := bloblease.New(s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if word(r) == "acquire" && !claimed {
						claimed = true
						r := request("x")
						r.Attempt, r.Holder = "other", "other"
						_, err := other.TryAcquire(t.Context(), r)
						require.Equal(t, dies, err != nil)
					}
					return next.RoundTrip(r)
				})
			}), nil)
			require.NoError(t, err)
			_, err = st.TryAcquire(t.Context(), request("x"))
			require.ErrorIs(t, err, lease.ErrHeld)
			info, err := st.Inspect(t.Context(), "x")
			require.NoError(t, err)
			if dies {
				require.Equal(t, lease.Free, info.State)
			} else {
				require.Equal(t, lease.Held, info.State)
				require.Equal(t, "other", info.Holder)
			}
			require.True(t, claimed)
		})
	}
}

// TestTokensAfterAFailover: an older copy of the container comes back; the next token is higher than any before.
func TestTokensAfterAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		h := s.host(t, nil)
		g := try(t, h.Store, "x", "1")
		require.NoError(t, h.Release(t.Context(), g, lease.Final{}))
		old := s.Snapshot(locks)
		var last lease.Grant
		for i := range 50 {
			last = try(t, h.Store, "x", fmt.Sprint("newer ", i))
			require.NoError(t, h.Release(t.Context(), last, lease.Final{}))
		}
		time.Sleep(time.Minute)
		last = try(t, h.Store, "x", "last")
		s.Restore(locks, old)
		time.Sleep(2 * time.Second)
		for _, st := range []host{s.host(t, nil), h} {
			next := try(t, st.Store, "x", "after "+fmt.Sprint(st.sent != h.sent))
			require.Greater(t, next.Token, last.Token)
			require.NoError(t, st.Release(t.Context(), next, lease.Final{}))
			last = next
		}
	})
}

// TestRangeOfTokens: 2^53-1 is the last, and what lies above was not written by this library.
func TestRangeOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		h := s.host(t, nil)
		c := s.sdk(t, nil)
		set := func(name string, n int64) {
			_, err := c.NewPageBlobClient("cloudlease/locks/"+name).Create(t.Context(), pageblob.PageBytes, &pageblob.CreateOptions{SequenceNumber: &n})
			require.NoError(t, err)
		}
		set("x", int64(lease.MaxToken)-2)
		for i := range 2 {
			g := try(t, h.Store, "x", fmt.Sprint(i))
			require.Equal(t, lease.MaxToken-1+lease.Token(i), g.Token) //nolint:gosec // 0 or 1
			require.NoError(t, h.Release(t.Context(), g, lease.Final{}))
		}
		_, err := h.TryAcquire(t.Context(), request("x"))
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, strconv.FormatUint(uint64(lease.MaxToken), 10))
		set("y", 1<<60)
		_, err = h.TryAcquire(t.Context(), request("y"))
		requireClass(t, err, lease.ErrMisconfigured)
	})
}

// TestServiceWithoutDate: tokens could fall behind a failover, so nothing is written.
func TestServiceWithoutDate(t *testing.T) {
	s := newService()
	c := &counter{}
	st, err := bloblease.New(s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
		return c.wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil {
				resp.Header.Del("Date")
			}
			return resp, err
		}))
	}), nil)
	require.NoError(t, err)
	_, err = st.TryAcquire(t.Context(), request("x"))
	requireClass(t, err, lease.ErrMisconfigured)
	require.ErrorContains(t, err, "Date")
	require.Equal(t, "head", c.take())
}

// TestGhosts: a lease that was asked for arrives after its attempt was given up. If the give-back came first, it is refused;
// a second copy that arrives after the release ends by itself, and is no holder's.
func TestGhosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var late *http.Request
		wire := make(chan struct{})
		st, err := bloblease.New(s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if word(r) != "acquire" || late != nil {
					return next.RoundTrip(r)
				}
				late = r.Clone(context.WithoutCancel(t.Context()))
				close(wire)
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
		}), nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-wire; cancel() }()
		r := request("x")
		_, err = st.TryAcquire(ctx, r)
		requireClass(t, err, lease.ErrInDoubt)
		require.ErrorIs(t, st.Release(t.Context(), lease.Grant{Request: r}, lease.Final{}), lease.ErrLost, "there is nothing to free")
		send := func() int {
			resp, err := emulatorTransport(s).RoundTrip(late)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			return resp.StatusCode
		}
		require.Equal(t, http.StatusPreconditionFailed, send(), "and nothing can come any more")
		h := s.host(t, nil)
		g := try(t, h.Store, "x", "next")
		require.NoError(t, h.Release(t.Context(), g, lease.Final{}))

		late = nil
		wire = make(chan struct{}) // this time the request arrives twice
		var twice *http.Request
		st, err = bloblease.New(s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if word(r) == "acquire" {
					twice = r.Clone(context.WithoutCancel(t.Context()))
				}
				return next.RoundTrip(r)
			})
		}), nil)
		require.NoError(t, err)
		g = try(t, st, "x", "twice")
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		late = twice
		require.Equal(t, http.StatusCreated, send(), "a ghost")
		landed := time.Now()
		c := h.client(t, &lease.Options{TTL: bloblease.MinTTL})
		l, err := c.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.WithinRange(t, time.Now(), landed.Add(bloblease.MinTTL), landed.Add(bloblease.MinTTL+2*time.Second))
		require.Greater(t, l.Token(), g.Token)
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestKilledBetweenTheTwo: a holder that dies after the write that frees the lock, and before its lease has ended, keeps nobody
// waiting; and what it left is there.
func TestKilledBetweenTheTwo(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		killed := storeOn(t, sdk(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if word(r) == "release" {
					return nil, errors.New("killed")
				}
				return next.RoundTrip(r)
			})
		}))
		g := try(t, killed, "x", "1")
		require.NoError(t, killed.Release(t.Context(), g, lease.Final{Value: []byte("left")}))
		sent := &counter{}
		st := storeOn(t, sdk(sent.wrap))
		info, err := st.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, lease.Free, info.State)
		require.Empty(t, info.Holder)
		sent.take()
		next := try(t, st, "x", "2")
		require.Equal(t, "head release number note acquire", sent.take())
		require.Greater(t, next.Token, g.Token)
		require.Equal(t, "left", string(next.Value))
		require.NoError(t, st.Release(t.Context(), next, lease.Final{}))
	})
}

// TestPP01_Native: a write to the lock's own blob by a holder that was overtaken is refused before the next one has written.
func TestPP01_Native(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		page := func(text string) []byte { return append([]byte(text), make([]byte, pageblob.PageBytes-len(text))...) }
		put := func(n bloblease.Native, text string) error {
			_, err := n.Blob().UploadPages(t.Context(), body(page(text)), blob.HTTPRange{Count: pageblob.PageBytes}, n.Options())
			return n.Refused(err)
		}
		st, op := storeOn(t, sdk(nil)), storeOn(t, sdk(nil))
		c := host{st, nil}.client(t, nil)
		old, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		native, err := st.Native(old)
		require.NoError(t, err)
		require.NoError(t, put(native, "of a"))
		require.NoError(t, old.Save(t.Context(), []byte("still works")), "although the blob has another version now")
		require.NoError(t, op.Break(t.Context(), "x", old.Token(), why))
		require.ErrorIs(t, put(native, "late"), lease.ErrStale, "nobody has taken it yet")
		g := try(t, op, "x", "next")
		require.ErrorIs(t, put(native, "late"), lease.ErrStale)
		stolen := native.Options() // even the right lease does not help with an old token
		stolen.AccessConditions.LeaseAccessConditions.LeaseID = new(g.Proof)
		_, err = native.Blob().UploadPages(t.Context(), body(page("late")), blob.HTTPRange{Count: pageblob.PageBytes}, stolen)
		require.ErrorIs(t, native.Refused(err), lease.ErrStale)
		require.NoError(t, op.Release(t.Context(), g, lease.Final{}))
		_ = c.Close(t.Context()) // its lease was broken

		_, err = newStore(t, sdk(nil), bloblease.Options{MetadataTokens: true}).Native(old)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}

func newStore(t *testing.T, c *container.Client, o bloblease.Options) *bloblease.Store {
	t.Helper()
	st, err := bloblease.New(c, &o)
	require.NoError(t, err)
	return st
}
