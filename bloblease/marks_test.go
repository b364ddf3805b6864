package bloblease_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

func tryMarked(t *testing.T, st *bloblease.Store, attempt string, at int64) (lease.Request, lease.Grant, error) {
	t.Helper()
	r := request("job")
	r.Attempt, r.Since = attempt, st.Clock()()
	r.Mark = &lease.Mark{Occurrence: at, AtMostOnce: true}
	g, err := st.TryAcquire(t.Context(), r)
	return r, g, err
}

// TestNeverLeased: an attempt that dies between its claim and its lease has started no occurrence.
func TestNeverLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		now := time.Now().Unix()
		h := s.host(t, nil)
		_, g, err := tryMarked(t, h.Store, "1", now-60)
		require.NoError(t, err)
		done := lease.Marks{Started: now - 60, Finished: now - 60}
		require.NoError(t, h.Release(t.Context(), g, lease.Final{Marks: &done}))
		_, _, err = tryMarked(t, s.refused(t, "acquire", http.StatusInternalServerError, "InternalError"), "2", now)
		requireClass(t, err, lease.ErrInDoubt)
		info, err := h.Inspect(t.Context(), "job")
		require.NoError(t, err)
		require.Equal(t, done, info.Marks)
		require.Equal(t, lease.Free, info.State)
		_, g, err = tryMarked(t, h.Store, "3", now)
		require.NoError(t, err, "it runs: nobody has started it")
		require.Equal(t, lease.Marks{Started: now, Finished: now - 60, Running: now}, g.Marks)
		require.NoError(t, h.Release(t.Context(), g, lease.Final{}))
		_, _, err = tryMarked(t, h.Store, "4", now)
		require.ErrorIs(t, err, lease.ErrPassed, "now somebody has")
	})
}

// TestGivenUpOccurrence: nor has one that was given up and whose lease can come no more.
func TestGivenUpOccurrence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		now := time.Now().Unix()
		st := s.refused(t, "acquire", http.StatusInternalServerError, "InternalError")
		r, _, err := tryMarked(t, st, "1", now)
		requireClass(t, err, lease.ErrInDoubt)
		require.ErrorIs(t, st.Release(t.Context(), lease.Grant{Request: r}, lease.Final{}), lease.ErrLost)
		h := s.host(t, nil)
		info, err := h.Inspect(t.Context(), "job")
		require.NoError(t, err)
		require.Zero(t, info.Marks)
		_, _, err = tryMarked(t, h.Store, "2", now)
		require.NoError(t, err)
	})
}

// TestOvertakenOccurrence: who is overtaken looks again, because what it is told depends on which occurrence runs.
func TestOvertakenOccurrence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		now := time.Now().Unix()
		other := s.host(t, nil)
		overtaken := false
		st, err := bloblease.New(s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if word(r) == "acquire" && !overtaken {
					overtaken = true
					_, _, err := tryMarked(t, other.Store, "other", now)
					require.NoError(t, err)
				}
				return next.RoundTrip(r)
			})
		}), nil)
		require.NoError(t, err)
		_, _, err = tryMarked(t, st, "1", now)
		held, ok := errors.AsType[*lease.HeldError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, now, held.Marks.Running, "its own occurrence runs: no success to a platform")
	})
}
