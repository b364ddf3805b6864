package lease_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func TestCheckName(t *testing.T) {
	for _, good := range []string{
		"a", ".", "..", "/", " ", "a/b", "a%2Fb", "é", "e\u0301", "😀", "\u2028", "\u00a0", "\ufffd", "\U0010ffff",
		strings.Repeat("x", 255), strings.Repeat("é", 127),
	} {
		require.NoError(t, lease.CheckName(good), "%q", good)
	}
	for bad, want := range map[string]string{
		"":                        "is empty; it has 1 to 255 bytes",
		strings.Repeat("x", 256):  "has 256 bytes, more than 255",
		strings.Repeat("é", 128):  "has 256 bytes, more than 255",
		"\xff":                    "is not valid UTF-8",
		"cut \xf0\x9f\x98":        "is not valid UTF-8",
		"surrogate \xed\xa0\x80":  "is not valid UTF-8",
		"a\x00b":                  "control character U+0000",
		"a\nb":                    "control character U+000A",
		"\x1f":                    "control character U+001F",
		"\x7f":                    "control character U+007F",
		"\u0085":                  "control character U+0085",
		strings.Repeat("\n", 300): "has 300 bytes",
	} {
		err := lease.CheckName(bad)
		require.ErrorIs(t, err, lease.ErrInvalid, "%q", bad)
		require.ErrorContains(t, err, want)
		require.Less(t, len(err.Error()), 250, "a long name is not repeated in full")
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestCheckValue(t *testing.T) {
	require.NoError(t, lease.CheckValue(nil))
	require.NoError(t, lease.CheckValue(make([]byte, lease.MaxValue)))
	err := lease.CheckValue(make([]byte, lease.MaxValue+1))
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "513 bytes, more than 512")
}

func TestBadNamesInErrorsSayWhatFailedOnce(t *testing.T) {
	w := newWorld(t)
	c := w.client(lease.Options{})
	_, err := c.TryAcquire(t.Context(), "")
	require.EqualError(t, err, "acquire on memory: invalid argument: a lock's name is empty; it has 1 to 255 bytes")
	_, err = c.Inspect(t.Context(), "")
	require.EqualError(t, err, "inspect on memory: invalid argument: a lock's name is empty; it has 1 to 255 bytes")
	require.Empty(t, w.faults.Calls(""))
}
