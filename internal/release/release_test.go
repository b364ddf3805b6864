package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var some = []file{{"cloudlease", 0o755, []byte("program")}, {"LICENSE", 0o644, []byte("terms")}}

// The same files make the same bytes, in whatever zone and second they are packed.
func TestArchivesOfTwoRunsAreEqual(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, pack := range map[string]func(io.Writer, []file, time.Time) error{"tar": packTar, "zip": packZip} {
		var one, two, later bytes.Buffer
		require.NoError(t, pack(&one, some, at), name)
		require.NoError(t, pack(&two, some, at.In(time.FixedZone("far", -8*3600))), name)
		require.NoError(t, pack(&later, some, at.Add(time.Hour)), name)
		require.Equal(t, one.Bytes(), two.Bytes(), name)
		require.NotEqual(t, one.Bytes(), later.Bytes(), "%s: the time is the commit's", name)
	}
}

func TestArchivesHoldWhatWasPacked(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var packed bytes.Buffer
	require.NoError(t, packTar(&packed, some, at))
	unzipped, err := gzip.NewReader(&packed)
	require.NoError(t, err)
	for r, i := tar.NewReader(unzipped), 0; ; i++ {
		h, err := r.Next()
		if i == len(some) {
			require.ErrorIs(t, err, io.EOF)
			break
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, some[i], file{h.Name, h.FileInfo().Mode(), data})
		require.True(t, at.Equal(h.ModTime))
		require.Empty(t, h.Uname)
		require.Zero(t, h.Uid)
	}

	packed.Reset()
	require.NoError(t, packZip(&packed, some, at))
	z, err := zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
	require.NoError(t, err)
	require.Len(t, z.File, len(some))
	for i, f := range z.File {
		require.Equal(t, some[i].name, f.Name)
		require.Equal(t, some[i].mode, f.Mode())
	}
}

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
