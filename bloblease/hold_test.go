package bloblease_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

// TestLateSave: an earlier write of the holder's own that arrives after a later one is refused.
func TestLateSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var late *http.Request
		st, err := bloblease.New(s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if word(r) != "note" || late != nil {
					return next.RoundTrip(r)
				}
				late = r.Clone(context.WithoutCancel(r.Context()))
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
		}), nil)
		require.NoError(t, err)
		g := try(t, st, "x", "1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = st.Save(ctx, g, []byte("first"))
		requireClass(t, err, lease.ErrInDoubt)
		_, err = st.Save(t.Context(), g, []byte("second"))
		require.NoError(t, err)
		resp, err := emulatorTransport(s).RoundTrip(late)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusPreconditionFailed, resp.StatusCode)
		info, err := st.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "second", string(info.Value))
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
	})
}

// TestSaveAfterAnUnansweredOne: the first was stored, so that the blob is not as it was seen; the second looks and writes.
func TestSaveAfterAnUnansweredOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		lost, sent := false, &counter{}
		st, err := bloblease.New(s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
			return sent.wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if word(r) == "note" && !lost {
					lost = true
					return nil, context.DeadlineExceeded
				}
				return resp, err
			}))
		}), nil)
		require.NoError(t, err)
		g := try(t, st, "x", "1")
		_, err = st.Save(t.Context(), g, []byte("first"))
		requireClass(t, err, lease.ErrInDoubt)
		sent.take()
		_, err = st.Save(t.Context(), g, []byte("second"))
		require.NoError(t, err)
		require.Equal(t, "note head note", sent.take())
	})
}

// TestSaveRenews when less than half of the trust is left, so that the lease does not end under the write.
func TestSaveRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newService().host(t, nil)
		g := try(t, h.Store, "x", "1")
		time.Sleep(10 * time.Second)
		h.sent.take()
		saved, err := h.Save(t.Context(), g, []byte("v"))
		require.NoError(t, err)
		require.Equal(t, "renew note", h.sent.take())
		require.Equal(t, 10*time.Second, saved.Sent.Mono-g.Sent.Mono)
		time.Sleep(10 * time.Second)
		_, err = h.Renew(t.Context(), saved)
		require.NoError(t, err)
		time.Sleep(bloblease.MinTTL)
		_, err = h.Save(t.Context(), saved, []byte("late"))
		requireClass(t, err, lease.ErrLost)
	})
}

// TestReleaseHelpedToItsEnd: the write that frees the lock was stored and not answered, and somebody has ended its lease since.
// The retry knows its first try; it is no release if the note does not say so.
func TestReleaseHelpedToItsEnd(t *testing.T) {
	for _, stored := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			done := false
			st, err := bloblease.New(s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if word(r) != "note" || done {
						return next.RoundTrip(r)
					}
					done = true
					if stored {
						resp, err := next.RoundTrip(r)
						require.NoError(t, err)
						require.NoError(t, resp.Body.Close())
					}
					return nil, context.DeadlineExceeded
				})
			}), nil)
			require.NoError(t, err)
			g := try(t, st, "x", "1")
			final := lease.Final{Value: []byte("left")}
			requireClass(t, st.Release(t.Context(), g, final), lease.ErrInDoubt)
			helper, err := azlease.NewBlobClient(s.sdk(t, nil).NewBlobClient("cloudlease/locks/x"), &azlease.BlobClientOptions{LeaseID: &g.Proof})
			require.NoError(t, err)
			_, err = helper.ReleaseLease(t.Context(), nil)
			require.NoError(t, err)
			err = st.Release(t.Context(), g, final)
			if stored {
				require.NoError(t, err)
			} else {
				requireClass(t, err, lease.ErrLost)
			}
		})
	}
}

// TestLateReleaseLeavesItsResult: the lease has ended, and nobody has taken the lock since, so that what was done counts.
func TestLateReleaseLeavesItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		h := s.host(t, nil)
		final := lease.Final{Value: []byte("left"), Marks: &lease.Marks{Started: 60, Finished: 60}}
		for _, taken := range []bool{false, true} {
			g := try(t, h.Store, "x", fmt.Sprint(taken))
			time.Sleep(time.Hour)
			if taken {
				require.NoError(t, s.host(t, nil).Release(t.Context(), try(t, s.host(t, nil).Store, "x", "next"), lease.Final{Value: []byte("newer")}))
				requireClass(t, h.Release(t.Context(), g, lease.Final{Value: []byte("late")}), lease.ErrLost)
			} else {
				require.NoError(t, h.Release(t.Context(), g, final))
			}
			info, err := h.Inspect(t.Context(), "x")
			require.NoError(t, err)
			require.Equal(t, lease.Free, info.State)
			require.Equal(t, map[bool]string{false: "left", true: "newer"}[taken], string(info.Value))
			require.Equal(t, *final.Marks, info.Marks)
		}
	})
}

// TestLateReleaseOvertaken: somebody has had the lock between the late release's look and its write, which is refused by the version.
func TestLateReleaseOvertaken(t *testing.T) {
	for _, o := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			other, notes, began := s.host(t, &o), 0, time.Now()
			st := newStore(t, s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if word(r) == "note" && time.Since(began) > time.Minute {
						if notes++; notes == 2 { // the first is refused because its lease has ended
							g := try(t, other.Store, "x", "other")
							require.NoError(t, other.Release(t.Context(), g, lease.Final{Value: []byte("newer")}))
						}
					}
					return next.RoundTrip(r)
				})
			}), o)
			g := try(t, st, "x", "late")
			time.Sleep(time.Hour)
			requireClass(t, st.Release(t.Context(), g, lease.Final{Value: []byte("late")}), lease.ErrLost)
			require.Equal(t, 2, notes)
			info, err := st.Inspect(t.Context(), "x")
			require.NoError(t, err)
			require.Equal(t, "newer", string(info.Value))
		})
	}
}

// TestReleaseOfTheBroken is no release, whatever state the break has left.
func TestReleaseOfTheBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		h, op := s.host(t, nil), s.host(t, nil)
		g := try(t, h.Store, "x", "1")
		require.NoError(t, op.Break(t.Context(), "x", g.Token, why))
		err := h.Release(t.Context(), g, lease.Final{})
		requireClass(t, err, lease.ErrLost)
		require.ErrorContains(t, err, "broken by "+why.By)
	})
}

// TestBreakRaces: between the look and the break the holder has written, or another has it; nothing is broken then.
func TestBreakRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		h := s.host(t, nil)
		g := try(t, h.Store, "x", "1")
		op, err := bloblease.New(s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if word(r) == "break" {
					require.NoError(t, h.Release(t.Context(), g, lease.Final{}))
					g = try(t, h.Store, "x", "2")
				}
				return next.RoundTrip(r)
			})
		}), nil)
		require.NoError(t, err)
		requireClass(t, op.Break(t.Context(), "x", g.Token, why), lease.ErrConflict)
		_, err = h.Renew(t.Context(), g)
		require.NoError(t, err, "the next holder was broken")
	})
}

// TestAnotherTokenOfAnAttempt is another lease's: the service refuses it, whatever this store has of the attempt.
func TestAnotherTokenOfAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newService().host(t, nil)
		g, err := h.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		other := g
		other.Token++
		_, err = h.Renew(t.Context(), other)
		require.ErrorIs(t, err, lease.ErrLost)
		require.ErrorIs(t, h.Release(t.Context(), other, lease.Final{}), lease.ErrLost)
		g, err = h.Renew(t.Context(), g)
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context(), g, lease.Final{}))
	})
}
