package fence_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestAdmits(t *testing.T) {
	have := fence.Entry{Token: 7, Holder: "a"}
	for _, c := range []struct {
		have   fence.Entry
		token  lease.Token
		holder string
		want   bool
	}{
		{fence.Entry{}, 1, "a", true},
		{have, 8, "a", true},
		{have, 8, "b", true},
		{have, lease.MaxToken, "b", true},
		{have, 7, "a", true},
		{have, 7, "b", false},
		{have, 7, "", false},
		{have, 6, "a", false},
		{have, 6, "b", false},
		{have, 1, "a", false},
	} {
		require.Equal(t, c.want, fence.Admits(c.have, c.token, c.holder), "%+v", c)
	}
}

func TestCheck(t *testing.T) {
	require.NoError(t, fence.Check("k", 1, "a"))
	require.NoError(t, fence.Check("k", lease.MaxToken, "a"))
	for want, err := range map[string]error{
		`put: invalid argument: the key is empty`:                                           fence.Check("", 1, "a"),
		`put "k": invalid argument: token 0 is not a fencing token (1 to 9007199254740991)`: fence.Check("k", 0, "a"),
		`put "k": invalid argument: token 9007199254740992 is not a fencing token (1 to 9007199254740991)`: fence.Check(
			"k", lease.MaxToken+1, "a"),
		`put "k": invalid argument: the holder is empty`: fence.Check("k", 1, ""),
	} {
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
}

func TestStaleError(t *testing.T) {
	const rest = "; the lease of this writer is over, discard its work"
	for want, err := range map[string]*fence.StaleError{
		`write of "k" with token 6 refused`:                               {Key: "k", Token: 6},
		`write of "k" with token 6 refused: token 7 has been seen`:        {Key: "k", Token: 6, Seen: 7},
		`write of "k" with token 6 refused: token 7 has been seen from b`: {Key: "k", Token: 6, Seen: 7, Holder: "b"},
		`write of "k" with token 7 refused: b wrote with the same token`:  {Key: "k", Token: 7, Seen: 7, Holder: "b"},
	} {
		require.EqualError(t, err, want+rest)
		require.ErrorIs(t, fmt.Errorf("wrapped: %w", err), lease.ErrStale)
		require.NotErrorIs(t, err, lease.ErrLost)
	}
}

// recording is a guard that keeps what it was asked.
type recording struct {
	fence.Guard
	key, holder string
	value       []byte
	token       lease.Token
}

func (r *recording) Put(_ context.Context, key string, value []byte, token lease.Token, holder string) error {
	r.key, r.value, r.token, r.holder = key, value, token, holder
	return nil
}

func TestPutSpeaksForTheLease(t *testing.T) {
	c, err := lease.New(memlease.New(), &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(t, err)
	l, err := c.TryAcquire(t.Context(), "x")
	require.NoError(t, err)
	var g recording
	require.NoError(t, fence.Put(t.Context(), &g, l, "k", []byte("v")))
	require.Equal(t, "k", g.key)
	require.Equal(t, "v", string(g.value))
	require.Equal(t, l.Token(), g.token)
	require.Equal(t, l.Holder(), g.holder)
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, fence.Put(t.Context(), &g, l, "late", nil), "whether the lease is over is for the storage to say")
	require.Equal(t, "late", g.key)
}
