package leasetest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

func yes() bool { return true }

func no() bool { return false }

func TestHistorySeesTwoHolders(t *testing.T) {
	h, v := leasetest.NewHistory(), &verdict{TB: t}
	h.Hold("x", "a", 1, yes)
	h.Hold("y", "b", 1, yes) // another lock
	h.Check(v)
	require.Empty(t, v.all())
	h.Hold("x", "b", 2, yes)
	h.Check(v)
	require.Contains(t, v.all(), `"x" was granted to b with token 2 while a still trusted token 1`)
}

func TestHistorySeesTrustThatComesBack(t *testing.T) {
	h, v := leasetest.NewHistory(), &verdict{TB: t}
	trusts := true
	h.Hold("x", "a", 1, func() bool { return trusts })
	trusts = false
	h.Hold("x", "b", 2, no)
	h.Check(v)
	require.Empty(t, v.all())
	trusts = true
	h.Check(v)
	require.Contains(t, v.all(), `a trusts token 1 of "x" again`)
}

func TestHistorySeesTokensThatDoNotGrow(t *testing.T) {
	h, v := leasetest.NewHistory(), &verdict{TB: t}
	h.Hold("x", "a", 5, no)
	h.Hold("x", "b", 5, no)
	h.Check(v)
	require.Contains(t, v.all(), `"x" was granted to b with token 5 after token 5 was granted to a`)
	h.Forget("x")
	h.Hold("x", "c", 4, no)
	h.Check(v)
	require.Contains(t, v.all(), "with token 4 after token 5", "a deletion does not excuse a lower token")
	for _, none := range []lease.Token{0, lease.MaxToken + 1} {
		h = leasetest.NewHistory()
		h.Hold("x", "a", none, no)
		h.Check(v)
		require.Contains(t, v.all(), "which is none")
	}
}

func TestHistoryKnowsReleases(t *testing.T) {
	h, v := leasetest.NewHistory(), &verdict{TB: t}
	h.Hold("x", "a", 1, yes)
	h.Release("x", 1)
	h.Hold("x", "b", 2, yes)
	h.Forget("x")
	h.Hold("x", "c", 3, yes)
	h.Check(v)
	require.Empty(t, v.all())
}

func (s scripted) Put(_ context.Context, _ string, _ []byte, token lease.Token, _ string) error {
	return s.put(token)
}

func (s scripted) Get(context.Context, string) (fence.Entry, error) { return s.get, nil }

// history of a guard that does whatever is asked.
func guarded(t *testing.T, act func(g func(err error, get fence.Entry) fence.Guard)) string {
	t.Helper()
	h, v := leasetest.NewHistory(), &verdict{TB: t}
	act(func(err error, get fence.Entry) fence.Guard {
		return h.Guard(scripted{put: func(lease.Token) error { return err }, get: get})
	})
	h.Check(v)
	return v.all()
}

func TestHistorySeesGuardsThatFail(t *testing.T) {
	const illegal = "did what no fenced register does"
	stale := &fence.StaleError{}
	inDoubt := &lease.Error{Class: lease.ErrInDoubt}
	unavailable := &lease.Error{Class: lease.ErrUnavailable}
	entry := func(token lease.Token, holder string) fence.Entry {
		return fence.Entry{Token: token, Holder: holder, Value: []byte(holder)}
	}
	type guard = func(err error, get fence.Entry) fence.Guard
	put := func(g fence.Guard, token lease.Token, holder string) {
		_ = g.Put(t.Context(), "k", []byte(holder), token, holder) // the guard is told what to answer
	}
	get := func(g fence.Guard) { _, _ = g.Get(t.Context(), "k") }

	for name, c := range map[string]struct {
		act  func(g guard)
		want string
	}{
		"in order": {func(g guard) {
			put(g(nil, fence.Entry{}), 1, "a")
			put(g(nil, fence.Entry{}), 2, "b")
			put(g(stale, fence.Entry{}), 1, "a")
			get(g(nil, entry(2, "b")))
		}, ""},
		"a lower token passes": {func(g guard) {
			put(g(nil, fence.Entry{}), 2, "b")
			put(g(nil, fence.Entry{}), 1, "a")
		}, illegal},
		"an equal token of another passes": {func(g guard) {
			put(g(nil, fence.Entry{}), 2, "a")
			put(g(nil, fence.Entry{}), 2, "b")
		}, illegal},
		"a good write is refused": {func(g guard) {
			put(g(nil, fence.Entry{}), 1, "a")
			put(g(stale, fence.Entry{}), 2, "b")
		}, illegal},
		"a refused write is seen": {func(g guard) {
			put(g(nil, fence.Entry{}), 2, "b")
			put(g(stale, fence.Entry{}), 1, "a")
			get(g(nil, entry(1, "a")))
		}, illegal},
		"a write is forgotten": {func(g guard) {
			put(g(nil, fence.Entry{}), 2, "b")
			get(g(nil, fence.Entry{}))
		}, illegal},
		"a failed write is seen": {func(g guard) {
			put(g(unavailable, fence.Entry{}), 2, "b")
			get(g(nil, entry(2, "b")))
		}, illegal},
		"a write in doubt is done": {func(g guard) {
			put(g(inDoubt, fence.Entry{}), 2, "b")
			get(g(nil, entry(2, "b")))
		}, ""},
		"a write in doubt is done late": {func(g guard) {
			put(g(inDoubt, fence.Entry{}), 2, "b")
			get(g(nil, fence.Entry{}))
			get(g(nil, entry(2, "b")))
		}, ""},
		"a write in doubt is undone": {func(g guard) {
			put(g(inDoubt, fence.Entry{}), 2, "b")
			get(g(nil, entry(2, "b")))
			get(g(nil, fence.Entry{}))
		}, illegal},
	} {
		t.Run(name, func(t *testing.T) {
			got := guarded(t, c.act)
			if c.want == "" {
				require.Empty(t, got)
			} else {
				require.Contains(t, got, c.want)
			}
		})
	}
}

func TestHistoryWatchesLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := leasetest.NewHistory(), &verdict{TB: t}
		c, err := lease.New(plain(leasetest.NewFaults()), &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
		require.NoError(t, err)
		l, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		h.Watch(l)
		h.Hold("x", "thief", l.Token()+1, no)
		h.Check(v)
		require.Contains(t, v.all(), "while "+l.Holder()+" still trusted")
		require.NoError(t, c.Close(t.Context()))
	})
}

func TestHistoryExcusesABrokenLeaseForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := leasetest.NewHistory(), &verdict{TB: t}
		h.Hold("x", "a", 1, yes)
		h.Excuse("x", 1, time.Now().Add(time.Second))
		h.Hold("x", "b", 2, no)
		h.Check(v)
		require.Empty(t, v.all(), "its holder has not learned it yet")
		time.Sleep(2 * time.Second)
		h.Hold("x", "c", 3, no)
		h.Check(v)
		require.Contains(t, v.all(), "while a still trusted token 1")

		h, v = leasetest.NewHistory(), &verdict{TB: t}
		h.Hold("x", "b", 2, no)
		h.Excuse("x", 1, time.Now().Add(time.Second))
		h.Hold("x", "a", 1, yes) // its answer comes late
		h.Check(v)
		require.Empty(t, v.all())
		h.Excuse("x", 2, time.Now().Add(time.Second))
		h.Excuse("x", 2, time.Time{}) // it was not broken
		h.Hold("y", "b", 2, yes)
		h.Excuse("y", 2, time.Time{})
		h.Hold("y", "c", 3, no)
		h.Check(v)
		require.Contains(t, v.all(), "while b still trusted token 2")
	})
}

func TestHistorySeesTokensBelowAFloor(t *testing.T) {
	h, v := leasetest.NewHistory(), &verdict{TB: t}
	h.Floor("x", 7)
	h.Hold("x", "a", 8, no)
	h.Check(v)
	require.Empty(t, v.all())
	h.Floor("x", 20)
	h.Hold("x", "b", 9, no)
	h.Check(v)
	require.Contains(t, v.all(), "with token 9 after token 20")
}
