package environ_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/functions/internal/environ"
)

func from(env map[string]string) *environ.Reader {
	return environ.New(func(name string) string { return env[name] })
}

func TestSettings(t *testing.T) {
	r := from(map[string]string{"TABLE": "locks", "TTL": "1m30s", "FENCE": "off"})
	require.Equal(t, "locks", r.Need("TABLE"))
	require.Equal(t, "locks", r.Get("TABLE"))
	require.Empty(t, r.Get("OTHER"))
	require.Equal(t, "settlement", r.Or("JOB", "settlement"))
	require.Equal(t, "locks", r.Or("TABLE", "settlement"))
	require.Equal(t, 90*time.Second, r.Duration("TTL"))
	require.Zero(t, r.Duration("PACE"))
	require.Equal(t, "off", r.OneOf("FENCE", "on", "off"))
	require.Equal(t, "page", r.OneOf("TOKENS", "page", "metadata"))
	r.Fault(nil)
	require.NoError(t, r.Err())
}

// Whoever deploys mends all settings in one go.
func TestAllFaultsAtOnce(t *testing.T) {
	own := errors.New("two settings contradict each other")
	r := from(map[string]string{"TTL": "soon", "PACE": "-1s", "FENCE": "maybe"})
	r.Need("TABLE")
	require.Zero(t, r.Duration("TTL"))
	require.Zero(t, r.Duration("PACE"), "no caller sees a negative one")
	r.OneOf("FENCE", "on", "off")
	r.Fault(own)
	err := r.Err()
	require.ErrorIs(t, err, own)
	require.EqualError(t, err, `the environment variable TABLE is missing
the environment variable TTL is "soon"; it is a duration such as 30s
the environment variable PACE is "-1s"; it is a duration such as 30s
the environment variable FENCE is "maybe"; it is on or off
two settings contradict each other`)
}
