package escape_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/cloudlease/cloudlease/internal/escape"
)

func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"Billing-2_x": "Billing-2_x", "a/b": "a=2Fb", "=": "=3D", "%2F": "=252F", ".": "=2E", "é": "=C3=A9", " ": "=20", "": "",
	} {
		require.Equal(t, want, escape.Name(name))
	}
}

// TestUndo: every name comes back, prefixes stay prefixes, and nothing but the escape of a name is one.
func TestUndo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, more := rapid.String().Draw(t, "name"), rapid.String().Draw(t, "more")
		got, err := escape.Undo(escape.Name(name))
		require.NoError(t, err)
		require.Equal(t, name, got)
		require.True(t, strings.HasPrefix(escape.Name(name+more), escape.Name(name)))
	})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab=09AFaf/.%"))).Draw(t, "text")
		if name, err := escape.Undo(text); err == nil {
			require.Equal(t, text, escape.Name(name))
		}
	})
	for _, text := range []string{"=", "=4", "=41", "=2f", "a/b", "=G0", "é", "=2"} {
		_, err := escape.Undo(text)
		require.Error(t, err, text)
	}
}
