package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryMutantCanBeMade: the text that it changes stands in its file, once, and its name is its own.
func TestEveryMutantCanBeMade(t *testing.T) {
	all, err := choose("")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, m := range all {
		require.False(t, names[m.name], m.name)
		names[m.name] = true
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		require.NoError(t, err, m.name)
		assert.Equal(t, 1, strings.Count(string(text), m.old), "%s in %s", m.name, m.file)
		if m.old2 != "" {
			assert.Equal(t, 1, strings.Count(string(text), m.old2), "%s in %s", m.name, m.file)
		}
	}
}
