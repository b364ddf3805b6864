package bloblease_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

// TestFloors counts what goes over the wire.
func TestFloors(t *testing.T) {
	for name, tc := range map[string]struct {
		opt   bloblease.Options
		claim string
	}{
		"page blobs":     {bloblease.Options{}, "number note"},
		"without holder": {bloblease.Options{NoHolder: true}, "number"},
		"metadata":       {bloblease.Options{MetadataTokens: true}, "note"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService()
				a, b := s.host(t, &tc.opt), s.host(t, &tc.opt)
				ca, cb := a.client(t, nil), b.client(t, nil)
				acquire := func(c *lease.Client, name string) *lease.Lease {
					l, err := c.TryAcquire(t.Context(), name)
					require.NoError(t, err)
					return l
				}

				l := acquire(ca, "x")
				require.Equal(t, "head create acquire", a.sent.take(), "first ever")
				for range 3 {
					_, err := cb.TryAcquire(t.Context(), "x")
					require.ErrorIs(t, err, lease.ErrHeld)
					require.Equal(t, "head", b.sent.take(), "fail fast on held")
				}
				require.NoError(t, l.Release(t.Context()))
				require.Equal(t, "release", a.sent.take())

				l = acquire(ca, "x")
				require.Equal(t, tc.claim+" acquire", a.sent.take(), "free, as it was seen")
				time.Sleep(12 * time.Second)
				require.Equal(t, "renew", a.sent.take(), "one renewal in a little more than TTL/3")
				require.NoError(t, l.Save(t.Context(), []byte("v")))
				require.Equal(t, "note", a.sent.take(), "save")
				require.NoError(t, l.ReleaseWith(t.Context(), lease.Final{Value: []byte("w")}))
				require.Equal(t, "note release", a.sent.take(), "release that leaves something")

				l = acquire(cb, "x")
				require.Equal(t, "head "+tc.claim+" acquire", b.sent.take(), "free, last held by another")
				require.NoError(t, l.Release(t.Context()))
				b.sent.take()
				l = acquire(ca, "x")
				words := a.sent.take()
				first, _, _ := strings.Cut(tc.claim, " ")
				require.Equal(t, first+" head "+tc.claim+" acquire", words, "free, but changed since it was seen")
				require.NoError(t, l.Release(t.Context()))
				a.sent.take()

				l = acquire(ca, "x") // and dies
				require.NotNil(t, l)
				b.sent.take()
				_, err := cb.TryAcquire(t.Context(), "x")
				require.ErrorIs(t, err, lease.ErrHeld)
				require.Regexp(t, "^"+first+"( head)?$", b.sent.take(), "fail fast on what was seen free")
				require.NoError(t, ca.Close(t.Context()))
				require.NoError(t, cb.Close(t.Context()))
			})
		})
	}
}

// TestFloorsOfADeadLock: it is read, claimed and leased like a free one.
func TestFloorsOfADeadLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		crash(t, s, "x")
		h := s.host(t, nil)
		c := h.client(t, nil)
		_, err := c.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, lease.ErrHeld)
		time.Sleep(time.Minute)
		h.sent.take()
		l, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "head number note acquire", h.sent.take())
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}

// crash acquires name and is never heard of again.
func crash(t *testing.T, s *service, name string) lease.Grant {
	t.Helper()
	g, err := s.host(t, nil).TryAcquire(t.Context(), request(name))
	require.NoError(t, err)
	return g
}

// TestFloorsOfAnOccurrence: skips and refusals cost one read and change nothing.
func TestFloorsOfAnOccurrence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, o := range []bloblease.Options{{}, {NoHolder: true}} {
			s := newService()
			h := s.host(t, &o)
			c := h.client(t, nil)
			now := time.Now().Unix()
			run := func(at int64) (*lease.Lease, error) {
				return c.TryAcquireMark(t.Context(), "job", lease.Mark{Occurrence: at})
			}
			l, err := run(now - 60)
			require.NoError(t, err)
			require.Equal(t, "head create acquire", h.sent.take())
			require.NoError(t, l.ReleaseWith(t.Context(), lease.Final{Marks: &lease.Marks{Started: now - 60, Finished: now - 60}}))
			require.Equal(t, "note release", h.sent.take())
			_, err = run(now - 60)
			require.ErrorIs(t, err, lease.ErrPassed)
			require.Equal(t, "head", h.sent.take(), "skip")
			l, err = run(now)
			require.NoError(t, err)
			require.Equal(t, "head number note acquire", h.sent.take(), "run")
			_, err = run(now)
			require.ErrorIs(t, err, lease.ErrHeld)
			require.Equal(t, "head", h.sent.take(), "running")
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, c.Close(t.Context()))
		}
	})
}

// TestFloorsOfAWaiter: one read a look, about one look a second.
func TestFloorsOfAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		a, b := s.host(t, nil), s.host(t, nil)
		ca, cb := a.client(t, nil), b.client(t, nil)
		l, err := ca.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		go func() {
			time.Sleep(20 * time.Second)
			_ = l.Release(t.Context())
		}()
		began := time.Now()
		m, err := cb.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.Less(t, time.Since(began), 22*time.Second)
		sent := b.sent.take()
		require.Regexp(t, `^(head )+number note acquire$`, sent)
		require.Less(t, len(sent)/len("head "), 45, "a look or two a second")
		require.NoError(t, m.Release(t.Context()))
		require.NoError(t, ca.Close(t.Context()))
		require.NoError(t, cb.Close(t.Context()))
	})
}

// TestFloorsOfGuards counts a guard's requests.
func TestFloorsOfGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		guard := func(tags bool) (*bloblease.Guard, *counter) {
			c := &counter{}
			g, err := bloblease.NewGuard(s.sdk(t, c.wrap), &bloblease.GuardOptions{Tags: tags})
			require.NoError(t, err)
			return g, c
		}
		for _, tags := range []bool{false, true} {
			key := map[bool]string{false: "a", true: "b"}[tags]
			g, sent := guard(tags)
			other, otherSent := guard(tags)
			require.NoError(t, g.Put(t.Context(), key, nil, 7, "a"))
			require.Equal(t, "create", sent.take(), "new")
			require.NoError(t, g.Put(t.Context(), key, nil, 7, "a"))
			require.Equal(t, "put", sent.take(), "again")
			require.NoError(t, other.Put(t.Context(), key, nil, 8, "b"))
			require.Equal(t, "create head put", otherSent.take(), "existing, not seen before")
			require.NoError(t, g.Put(t.Context(), key, nil, 9, "a"))
			if tags {
				require.Equal(t, "put", sent.take(), "written by another since")
			} else {
				require.Equal(t, "put head put", sent.take(), "written by another since")
			}
			require.ErrorIs(t, other.Put(t.Context(), key, nil, 8, "b"), lease.ErrStale)
			require.Equal(t, "put head", otherSent.take(), "refused")
		}
	})
}
