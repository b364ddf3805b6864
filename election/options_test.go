package election_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestOptions(t *testing.T) {
	client := func(o lease.Options) *lease.Client {
		c, err := lease.New(memlease.New(), &o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close(t.Context())) })
		return c
	}
	c := client(lease.Options{Holder: "w-1", TTL: time.Second, Margin: 50 * time.Millisecond})
	_, err := election.New(nil, office, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)

	_, err = election.New(c, "", &election.Options{
		StopLimit: -1, Pause: -time.Second, MaxPause: -time.Minute, Look: time.Millisecond, Exit: func(int) {},
	})
	require.ErrorIs(t, err, lease.ErrInvalid)
	for _, fault := range []string{"name is empty", "stop limit", "pause -1s", "longest pause", "look every", "margin 50ms"} {
		require.ErrorContains(t, err, fault, "all at once")
	}

	one, err := election.New(c, office, nil)
	require.NoError(t, err)
	two, err := election.New(c, office, nil)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(one.Holder(), "w-1:"))
	require.NotEqual(t, one.Holder(), two.Holder(), "two candidates of one client are two")

	_, err = election.New(c, office, &election.Options{Pause: time.Hour})
	require.NoError(t, err, "the longest pause is never below the pause by default")
}
