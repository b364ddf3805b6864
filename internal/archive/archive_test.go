package archive_test

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

	"github.com/cloudlease/cloudlease/internal/archive"
)

var some = []archive.File{{Name: "cloudlease", Mode: 0o755, Data: []byte("program")}, {Name: "LICENSE", Mode: 0o644, Data: []byte("terms")}}

// The same files make the same bytes, in whatever zone and second they are packed.
func TestArchivesOfTwoRunsAreEqual(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, pack := range map[string]func(io.Writer, []archive.File, time.Time) error{"tar": archive.Tar, "zip": archive.Zip} {
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
	require.NoError(t, archive.Tar(&packed, some, at))
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
		require.Equal(t, some[i], archive.File{Name: h.Name, Mode: h.FileInfo().Mode(), Data: data})
		require.True(t, at.Equal(h.ModTime))
		require.Empty(t, h.Uname)
		require.Zero(t, h.Uid)
	}

	packed.Reset()
	require.NoError(t, archive.Zip(&packed, some, at))
	z, err := zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
	require.NoError(t, err)
	require.Len(t, z.File, len(some))
	for i, f := range z.File {
		require.Equal(t, some[i].Name, f.Name)
		require.Equal(t, some[i].Mode, f.Mode())
	}
}

func TestSums(t *testing.T) {
	dir := t.TempDir()
	zip := filepath.Join(dir, "a.zip")
	require.NoError(t, os.WriteFile(zip, []byte("abc"), 0o600))
	require.NoError(t, archive.Sums(filepath.Join(dir, "SHA256SUMS"), []string{zip}))
	b, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	require.NoError(t, err)
	require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a.zip\n", string(b))
}
