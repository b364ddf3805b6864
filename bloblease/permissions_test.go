package bloblease_test

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

// documented are the data actions that docs/azure.md gives a role.
func documented(t *testing.T, role string) []string {
	t.Helper()
	doc, err := os.ReadFile("../docs/azure.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(role) + ` \| (.*) \|$`).FindSubmatch(doc)
	require.NotNil(t, row, "docs/azure.md has no role %q", role)
	return strings.Split(strings.ReplaceAll(string(row[1]), "`", ""), ", ")
}

// gate keeps which data actions were asked for.
type gate struct {
	mu    sync.Mutex
	asked map[string]bool
}

func (g *gate) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			g.asked["blobs/read"] = true
		case http.MethodDelete:
			g.asked["blobs/delete"] = true
		default:
			g.asked["blobs/write"] = true
		}
		h := canonical(r.Header)
		if h.Get("x-ms-tags") != "" {
			g.asked["blobs/tags/write"] = true
		}
		if h.Get("x-ms-if-tags") != "" {
			g.asked["blobs/tags/read"] = true
		}
		return next.RoundTrip(r)
	})
}

// TestPermissions lives each role's life and wants it to have needed what docs/azure.md gives it: no more, no less.
func TestPermissions(t *testing.T) {
	for role, life := range map[string]func(*testing.T, *service, *gate){
		"Locker": lockerLife, "Watcher (inspect, list)": watcherLife, "Guard writer": guardLife(false), "Guard writer, Tags": guardLife(true),
	} {
		t.Run(role, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{asked: map[string]bool{}}
				life(t, newService(), g)
				require.Equal(t, documented(t, role), slices.Sorted(maps.Keys(g.asked)))
			})
		})
	}
}

func lockerLife(t *testing.T, s *service, g *gate) {
	for _, o := range []bloblease.Options{{}, {MetadataTokens: true, Prefix: "other/"}} {
		st := newStore(t, s.sdk(t, g.wrap), o)
		c := host{st, nil}.client(t, nil)
		l, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, l.Save(t.Context(), []byte("v")))
		time.Sleep(time.Minute)
		require.NoError(t, l.ReleaseWith(t.Context(), lease.Final{Value: []byte("w")}))
		l, err = c.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, st.Break(t.Context(), "x", l.Token(), why))
		require.NoError(t, st.RaiseFloor(t.Context(), "x", 1<<50))
		rec, err := st.Swap(t.Context(), lease.Record{Key: "r"}, []byte("v"), 0)
		require.NoError(t, err)
		_, err = st.Swap(t.Context(), rec, nil, 0)
		require.NoError(t, err)
		_ = c.Close(t.Context()) // its lease was broken
	}
}

func watcherLife(t *testing.T, s *service, g *gate) {
	crash(t, s, "x")
	st := newStore(t, s.sdk(t, g.wrap), bloblease.Options{})
	_, err := st.Inspect(t.Context(), "x")
	require.NoError(t, err)
	for _, err := range st.List(t.Context(), "") {
		require.NoError(t, err)
	}
	for _, err := range st.Scan(t.Context(), "") {
		require.NoError(t, err)
	}
	_, err = st.Load(t.Context(), "r")
	require.NoError(t, err)
}

func guardLife(tags bool) func(*testing.T, *service, *gate) {
	return func(t *testing.T, s *service, g *gate) {
		t.Helper()
		guard, err := bloblease.NewGuard(s.sdk(t, g.wrap), &bloblease.GuardOptions{Tags: tags})
		require.NoError(t, err)
		require.NoError(t, guard.Put(t.Context(), "k", nil, 7, "a"))
		require.NoError(t, guard.Put(t.Context(), "k", nil, 8, "b"))
		require.ErrorIs(t, guard.Put(t.Context(), "k", nil, 7, "a"), lease.ErrStale)
		_, err = guard.Get(t.Context(), "k")
		require.NoError(t, err)
	}
}
