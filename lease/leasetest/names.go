package leasetest

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func nameCases() []storeCase {
	return []storeCase{
		{name: "GE01_DifferentNamesAreDifferentLocks", run: differentNames},
		{name: "GE01_BadNamesAreNotSent", run: badNames},
		{name: "GE01_ListGivesNamesBack", run: listGivesNamesBack},
	}
}

// nastyNames are names that some service, encoding or file system takes for one another.
func nastyNames() []string {
	long := strings.Repeat("n", 40)
	return []string{
		"a/b", "a_b", "a-b", "a.b", "a%2Fb", "a%2fb", "a//b", "A/b", "a/B", "a\\b", "a+b", "a b", "a%20b", "a#b", "a?b", "a&b", "a=b",
		"xyz", "x/yz", "xy/z", "x:yz", "xy:z", "x|yz", "x,yz",
		long + "production0123456789", long + "test-slot-0123456789",
		strings.Repeat("x", 254), strings.Repeat("x", 255), strings.Repeat("x", 254) + "y", strings.Repeat("é", 127),
		"caf\u00e9", "cafe\u0301", "CAF\u00c9", "\u212b", "\u00c5", "A\u030a", "ﬁ", "fi", "ß", "ss", "ı", "i", "I",
		" lead", "lead", "lead ", "/lead", "lead/", "//", "/", ".", "..", "...", "./lead", "\u00a0lead", "\u200blead", "\u2028",
		"😀", "😀😀", "\U0010ffff", "\ufffd", "\ufeffbom", "bom",
		"$", "*", "'", "\"", "`", "<a>", "{a}", "(a)", "[a]", "~", "!", "%", "%00", "%zz", "%25", "null", "0", "00", "-1", "1e3",
	}
}

// differentNames holds them all at once: two names that meet anywhere refuse each other.
func differentNames(e *env) {
	a, b := e.host("a"), e.host("b")
	grants := map[string]lease.Grant{}
	for _, name := range nastyNames() {
		require.NoError(e, lease.CheckName(name))
		g, err := a.store.TryAcquire(e.Context(), a.attempt(name))
		require.NoError(e, err, "%q: it meets another name", name)
		grants[name] = g
		_, err = a.store.Save(e.Context(), g, []byte(name))
		require.NoError(e, err, "%q", name)
	}
	for name, g := range grants {
		_, err := b.store.TryAcquire(e.Context(), b.attempt(name))
		require.ErrorIs(e, err, lease.ErrHeld, "%q is not one lock", name)
		info := b.inspect(name)
		require.Equal(e, g.Token, info.Token, "%q", name)
		require.Equal(e, name, string(info.Value))
	}
	for name, g := range grants {
		renewed, err := a.store.Renew(e.Context(), g)
		require.NoError(e, err, "%q", name)
		require.NoError(e, a.store.Release(e.Context(), renewed, lease.Final{}), "%q", name)
		require.Equal(e, lease.Free, b.inspect(name).State, "%q", name)
	}
}

func badNames(e *env) {
	a := e.host("a")
	c := a.client()
	sent := len(a.faults.Calls(""))
	for _, name := range []string{
		"", "\x00", "a\x00b", "tab\t", "line\n", "\r", "\x7f", "\u0085", "\xff", "cut \xe2\x82", "\xed\xa0\x80",
		strings.Repeat("x", 256), strings.Repeat("é", 128), strings.Repeat("x", 1024), strings.Repeat("x", 2048),
	} {
		_, err := c.TryAcquire(e.Context(), name)
		require.ErrorIs(e, err, lease.ErrInvalid, "%q", name)
		_, err = c.Acquire(e.Context(), name)
		require.ErrorIs(e, err, lease.ErrInvalid, "%q", name)
		_, err = c.Inspect(e.Context(), name)
		require.ErrorIs(e, err, lease.ErrInvalid, "%q", name)
		if len(name) > lease.MaxName {
			require.ErrorContains(e, err, "255", "the limit must be told")
		}
	}
	require.Len(e, a.faults.Calls(""), sent, "a bad name was sent")
}

// listGivesNamesBack also in many pages.
func listGivesNamesBack(e *env) {
	a := e.host("a")
	lister, ok := a.store.(lease.Lister)
	if !ok {
		e.Log("the store lists nothing")
		return
	}
	list := func(prefix string) map[string]lease.Info {
		e.Helper()
		got := map[string]lease.Info{}
		for info, err := range lister.List(e.Context(), prefix) {
			require.NoError(e, err)
			require.NotContains(e, got, info.Name, "it was listed twice")
			got[info.Name] = info
		}
		return got
	}
	require.Empty(e, list(""))
	var want []string
	for i, name := range nastyNames() {
		g, err := a.store.TryAcquire(e.Context(), a.attempt(name))
		require.NoError(e, err)
		if i%2 == 0 {
			require.NoError(e, a.store.Release(e.Context(), g, lease.Final{}))
		}
		want = append(want, name)
	}
	got := list("")
	require.Len(e, got, len(want))
	for name, info := range got {
		require.Contains(e, want, name)
		require.Equal(e, a.inspect(name), info, "the listing of %q", name)
	}
	for _, prefix := range []string{"a", "a/", "A", "lead", "😀", "caf\u00e9", "e", "%2", "no such prefix"} {
		matching := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return !strings.HasPrefix(name, prefix) })
		got := list(prefix)
		require.Len(e, got, len(matching), "prefix %q", prefix)
		for _, name := range matching {
			require.Contains(e, got, name, "prefix %q", prefix)
		}
	}
	for _, r := range []Rule{{Kind: DropAnswer}, {Kind: Fail, Failure: Denied}} {
		bad := a.faults.Add(r)
		var failed error
		for _, err := range lister.List(e.Context(), "") {
			failed = err
		}
		bad.Stop()
		require.Error(e, failed, "a listing that failed passes for the whole")
	}
	for _, err := range lister.List(e.Context(), "") {
		require.NoError(e, err)
		break // a caller may stop
	}
}
