package excerpt_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/excerpt"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "short": "short", "12345678": "12345678", "123456789": "12345678…", "1234567ä9": "1234567…",
		"\x1b[2J\n": "\uFFFD[2J ", "\xff\xfe": "\uFFFD\uFFFD", "ä\x00": "ä\uFFFD",
	} {
		got := excerpt.Of(text, 8)
		require.Equal(t, want, got, "%q", text)
		require.True(t, utf8.ValidString(got))
	}
	require.Equal(t, strings.Repeat("\uFFFD", 4)+"…", excerpt.Of(strings.Repeat("\x80", 20), 8))
}

func TestError(t *testing.T) {
	require.EqualError(t, excerpt.Error(errors.New("plain")), "plain")
	require.Less(t, len(excerpt.Error(errors.New(strings.Repeat("\n", 1<<20))).Error()), 700)
}
