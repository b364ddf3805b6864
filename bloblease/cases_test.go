package bloblease_test

import (
	"errors"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// onEach runs a case in virtual time on the fake, and in real time on Azurite if that is asked for. It is given what makes
// clients of the case's container.
func onEach(t *testing.T, test func(t *testing.T, sdk func(wrap func(http.RoundTripper) http.RoundTripper) *container.Client)) {
	t.Helper()
	t.Parallel() // on the engine they wait
	t.Run("virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			test(t, func(wrap func(http.RoundTripper) http.RoundTripper) *container.Client { return s.sdk(t, wrap) })
		})
	})
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return
	}
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		b := newReal(t, bloblease.Options{})
		test(t, func(wrap func(http.RoundTripper) http.RoundTripper) *container.Client {
			wire := b.wire()
			if wrap != nil {
				wire = wrap(wire)
			}
			return b.sdk(t, wire)
		})
	})
}

func storeOn(t *testing.T, c *container.Client) *bloblease.Store {
	t.Helper()
	st, err := bloblease.New(c, nil)
	require.NoError(t, err)
	return st
}

// TestAZ01_TTLOutsideTheService: it is refused before anything is sent, and no lease without an end is ever asked for.
func TestAZ01_TTLOutsideTheService(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		sent := &counter{}
		st := storeOn(t, sdk(sent.wrap))
		for _, ttl := range []time.Duration{5 * time.Second, 14900 * time.Millisecond, 60500 * time.Millisecond, 300 * time.Second, 0, -1, -time.Second} {
			r := request("x")
			r.TTL = ttl
			_, err := st.TryAcquire(t.Context(), r)
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, "15s to 1m0s")
			if ttl != 0 { // there it means the default
				_, err = lease.New(st, &lease.Options{TTL: ttl})
				require.ErrorIs(t, err, lease.ErrInvalid)
				require.ErrorContains(t, err, "15s")
			}
		}
		require.Empty(t, sent.take())
		for _, ttl := range []time.Duration{15 * time.Second, 60 * time.Second} {
			r := request("x" + ttl.String())
			r.TTL = ttl
			_, err := st.TryAcquire(t.Context(), r)
			require.NoError(t, err)
		}
		durations := []string{}
		for _, h := range sent.all {
			if d := h.Get("x-ms-lease-duration"); d != "" {
				durations = append(durations, d)
			}
		}
		require.Equal(t, []string{"15", "60"}, durations)
	})
}

// TestAZ02_InfiniteLease: somebody has leased a lock's blob by hand, without an end.
func TestAZ02_InfiniteLease(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		c := sdk(nil)
		st := storeOn(t, c)
		for name, bring := range map[string]func(t *testing.T, b *pageblob.Client){
			"ours": func(t *testing.T, _ *pageblob.Client) {
				t.Helper()
				other := storeOn(t, c)
				g, err := other.TryAcquire(t.Context(), request("ours"))
				require.NoError(t, err)
				require.NoError(t, other.Release(t.Context(), g, lease.Final{Value: []byte("kept")}))
			},
			"empty": func(t *testing.T, b *pageblob.Client) {
				t.Helper()
				_, err := b.Create(t.Context(), pageblob.PageBytes, nil)
				require.NoError(t, err)
			},
			"garbage": func(t *testing.T, b *pageblob.Client) {
				t.Helper()
				_, err := b.Create(t.Context(), pageblob.PageBytes, &pageblob.CreateOptions{
					Metadata: map[string]*string{"lockid": new("{!}"), "holder": new("?")},
				})
				require.NoError(t, err)
			},
		} {
			b := c.NewPageBlobClient("cloudlease/locks/" + name)
			bring(t, b)
			before := time.Now()
			endless, err := azlease.NewBlobClient(b, nil)
			require.NoError(t, err)
			_, err = endless.AcquireLease(t.Context(), -1, nil)
			require.NoError(t, err)

			r := request(name)
			r.Attempt, r.Since = "next "+name, lease.SystemClock()
			_, err = st.TryAcquire(t.Context(), r)
			held, ok := errors.AsType[*lease.HeldError](err)
			require.True(t, ok, "%v", err)
			require.Contains(t, held.Holder, "without an end")
			info, err := st.Inspect(t.Context(), name)
			require.NoError(t, err)
			require.Equal(t, lease.Held, info.State)
			require.Contains(t, info.Holder, "unknown")

			require.ErrorIs(t, st.Break(t.Context(), name, info.Token+1, why), lease.ErrConflict, "another token than the inspected one")
			require.NoError(t, st.Break(t.Context(), name, info.Token, why))
			g, err := st.TryAcquire(t.Context(), r)
			require.NoError(t, err)
			require.Greater(t, g.Token, info.Token)
			require.GreaterOrEqual(t, int64(g.Token), before.Add(-2*time.Second).UnixMilli(), "above all by the clock")
			if name == "ours" {
				require.Equal(t, "kept", string(g.Value))
			}
			require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		}
	})
}

var why = lease.Reason{By: "ops@example.com", Why: "stuck since noon"}

// TestAZ02_UnreadableNote: tokens are safe in the sequence number, but marks are not guessed. RaiseFloor mends it.
func TestAZ02_UnreadableNote(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		c := sdk(nil)
		st := storeOn(t, c)
		_, err := c.NewPageBlobClient("cloudlease/locks/x").Create(t.Context(), pageblob.PageBytes, &pageblob.CreateOptions{
			SequenceNumber: new(int64(77)), Metadata: map[string]*string{"token": new("seventy-seven")},
		})
		require.NoError(t, err)
		_, err = st.TryAcquire(t.Context(), request("x"))
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "RaiseFloor")
		info, err := st.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, lease.Token(77), info.Token)
		require.NoError(t, st.RaiseFloor(t.Context(), "x", 78))
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.Greater(t, g.Token, lease.Token(78))
	})
}

// TestAZ03_Break with a grace and without: the period is always on the wire.
func TestAZ03_Break(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		for grace, name := range map[time.Duration]string{10 * time.Second: "graced", 0: "at once"} {
			sent := &counter{}
			op := storeOn(t, sdk(sent.wrap))
			a := host{storeOn(t, sdk(nil)), nil}.client(t, nil)
			b := host{storeOn(t, sdk(nil)), nil}.client(t, &lease.Options{TTL: bloblease.MinTTL})
			l, err := a.TryAcquire(t.Context(), name)
			require.NoError(t, err)
			left, err := op.BreakIn(t.Context(), name, l.Token(), grace, why)
			require.NoError(t, err)
			broken := time.Now()
			require.InDelta(t, grace.Seconds(), left.Seconds(), 1)
			require.Equal(t, map[time.Duration]string{10 * time.Second: "10", 0: "0"}[grace], sent.all[1].Get("x-ms-lease-break-period"))
			if grace > 0 {
				info, err := op.Inspect(t.Context(), name)
				require.NoError(t, err)
				require.Equal(t, lease.Held, info.State, "breaking")
			}
			next, err := b.Acquire(t.Context(), name)
			require.NoError(t, err)
			require.WithinRange(t, time.Now(), broken.Add(grace-time.Second), broken.Add(grace+2*time.Second))
			require.Greater(t, next.Token(), l.Token())
			select {
			case <-l.Done():
			case <-time.After(a.Options().Heartbeat*11/10 + time.Second):
				require.Fail(t, "the holder did not learn it at its next renewal")
			}
			require.ErrorIs(t, l.Err(), lease.ErrLost)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
			require.NoError(t, next.Err())
			require.NoError(t, next.Release(t.Context()))
			_ = a.Close(t.Context()) // its lease was broken
			require.NoError(t, b.Close(t.Context()))
		}
		_, err := storeOn(t, sdk(nil)).BreakIn(t.Context(), "x", 7, time.Hour, why)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}

// TestAZ06_ContainerRecreated: the holder loses its lease and makes nothing; the next token is higher.
func TestAZ06_ContainerRecreated(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		sent := &counter{}
		a := host{storeOn(t, sdk(sent.wrap)), nil}.client(t, nil)
		l, err := a.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(4 * time.Second) // a new blob's token is 2 s ahead of the clock, which is known to a second or two
		c := sdk(nil)
		deleted := time.Now()
		_, err = c.Delete(t.Context(), nil)
		require.NoError(t, err)
		_, err = c.Create(t.Context(), nil)
		require.NoError(t, err)
		sent.take()
		g, err := storeOn(t, c).TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.Greater(t, g.Token, l.Token())
		<-l.Done()
		require.Less(t, time.Since(deleted), a.Options().Heartbeat*11/10+time.Second)
		require.ErrorIs(t, l.Err(), lease.ErrLost)
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
		require.NotContains(t, sent.take(), "create")
		_, err = storeOn(t, c).Renew(t.Context(), g)
		require.NoError(t, err)
		_ = a.Close(t.Context()) // its lease is lost
	})
}

// TestAZ06_NothingIsDeletedAndLittleIsWritten: soft delete keeps nothing of it, and versions one a grant.
func TestAZ06_NothingIsDeletedAndLittleIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		h := s.host(t, nil)
		c := h.client(t, nil)
		last := lease.Token(0)
		for range 20 {
			l, err := c.TryAcquire(t.Context(), "x")
			require.NoError(t, err)
			require.Greater(t, l.Token(), last)
			last = l.Token()
			require.NoError(t, l.Release(t.Context()))
		}
		sent := h.sent.take()
		require.NotContains(t, sent, "delete")
		require.NotContains(t, sent, "put", "a blob that is overwritten is kept by soft delete")

		l, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "number note acquire", h.sent.take(), "two writes")
		time.Sleep(10 * time.Minute)
		require.NoError(t, l.Err())
		require.Regexp(t, "^(renew ?)+$", h.sent.take(), "a hold writes neither content nor metadata")
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestLateRenewal: Azurite renews a lease that has expired whatever its id, and answers with the id of the one it has revived.
// An answer with another's id is a loss; and past the own deadline nothing is sent.
func TestLateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		g := crash(t, s, "x")
		st, err := bloblease.New(s.sdk(t, func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp := answer(r, http.StatusOK, "")
				resp.Header = http.Header{"X-Ms-Lease-Id": {"00000000-0000-0000-0000-000000000001"}, "Date": resp.Header["Date"]}
				return resp, nil
			})
		}), nil)
		require.NoError(t, err)
		_, err = st.Renew(t.Context(), g)
		requireClass(t, err, lease.ErrLost)
		require.ErrorContains(t, err, "another's lease")

		h := s.host(t, nil)
		time.Sleep(bloblease.MinTTL)
		_, err = h.Renew(t.Context(), g)
		requireClass(t, err, lease.ErrLost)
		require.Empty(t, h.sent.take())
	})
}
