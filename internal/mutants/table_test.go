package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxSeed is how many seeds of a simulation suffice to find every mutant that it looks for.
const maxSeed uint64 = 60

// TestEveryMutantCanBeMade: the text that it changes stands in its file, once, and its name is its own. Chance finds it as well, or
// it is said why not.
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
		assert.NotEqual(t, m.seed > 0, m.unsought != "", "%s: either a seed of the simulation finds it, or it is said why none looks for it", m.name)
		assert.LessOrEqual(t, m.seed, maxSeed, m.name)
		if m.old2 != "" {
			assert.Equal(t, 1, strings.Count(string(text), m.old2), "%s in %s", m.name, m.file)
		}
	}
}
