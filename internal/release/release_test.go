package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func bill(t *testing.T, components string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.cdx.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"components":[`+components+`]}`), 0o600))
	return path
}

func TestLicensesThatArePermitted(t *testing.T) {
	count, err := licenses(bill(t, `{"name":"a","evidence":{"licenses":[{"license":{"id":"MIT"}}]}},
		{"name":"b","licenses":[{"license":{"id":"MPL-2.0"}}]},
		{"name":"github.com/hashicorp/go-metrics"},{"name":"std"}`))
	require.NoError(t, err)
	require.Equal(t, map[string]int{"MIT": 2, "MPL-2.0": 1, "BSD-3-Clause": 1}, count)
}

func TestLicensesThatAreNot(t *testing.T) {
	for components, says := range map[string]string{
		`{"name":"a","evidence":{"licenses":[{"license":{"id":"GPL-3.0-only"}}]}}`:                                "a is under GPL-3.0-only",
		`{"name":"a","evidence":{"licenses":[{"license":{"id":"MIT"}},{"license":{"name":"Business Source"}}]}}`:  "a is under Business Source",
		`{"name":"a","evidence":{"licenses":[{"license":{"id":"MIT"}}]}},{"name":"b","evidence":{"licenses":[]}}`: "no license is known of b",
		``: "names no modules",
	} {
		_, err := licenses(bill(t, components))
		require.ErrorContains(t, err, says)
	}
}

// A module without a license in its directory stops a release.
func TestNotices(t *testing.T) {
	dir := t.TempDir()
	var text bytes.Buffer
	require.ErrorContains(t, appendNotices(&text, "m v1", dir), "m v1 has no license")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "COPYING.md"), []byte("terms\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "NOTICE"), []byte("thanks"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "license.go.txt.d"), nil, 0o600))
	require.NoError(t, appendNotices(&text, "m v1", dir))
	require.Contains(t, text.String(), "m v1: COPYING.md\n\nterms\n")
	require.Contains(t, text.String(), "m v1: NOTICE\n\nthanks\n")
}

func TestSums(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), []byte("b"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	require.NoError(t, sums(dir))
	b, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	require.NoError(t, err)
	require.Equal(t, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n"+
		"3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d  b\n", string(b))
}
