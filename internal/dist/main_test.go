package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/template"
)

// tree makes a directory with the same three files in a given order, at a time and with modes of its own.
func tree(t *testing.T, at time.Time, mode fs.FileMode, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("the file "+name), mode)))
		require.NoError(t, os.Chtimes(path, at, at))
	}
	return dir
}

// Two trees that differ in all but their files' names and contents give one archive; another content gives another.
func TestArchivesAreReproducible(t *testing.T) {
	one := tree(t, time.Unix(1_700_000_000, 0), 0o755, "bootstrap", "host.json", "settlement/function.json")
	two := tree(t, time.Unix(1_800_000_001, 5), 0o600, "settlement/function.json", "host.json", "bootstrap")
	read := func(dir string) []byte {
		archive := filepath.Join(t.TempDir(), "a.zip")
		require.NoError(t, pack(archive, dir, "bootstrap"))
		b, err := os.ReadFile(archive)
		require.NoError(t, err)
		return b
	}
	require.Equal(t, read(one), read(two))
	require.NoError(t, os.WriteFile(filepath.Join(two, "host.json"), []byte("another"), 0o600))
	require.NotEqual(t, read(one), read(two))
}

// What the platforms look at: the names, and which file is a program.
func TestArchive(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "a.zip")
	require.NoError(t, pack(archive, tree(t, time.Now(), 0o600, "host.json", "bootstrap", "settlement/function.json"), "bootstrap"))
	r, err := zip.OpenReader(archive)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	modes := map[string]fs.FileMode{}
	var names []string
	for _, f := range r.File {
		names = append(names, f.Name)
		modes[f.Name] = f.Mode()
		require.True(t, f.Modified.Equal(epoch), f.Modified)
	}
	require.Equal(t, []string{"bootstrap", "host.json", "settlement/function.json"}, names)
	require.Equal(t, map[string]fs.FileMode{"bootstrap": 0o755, "host.json": 0o644, "settlement/function.json": 0o644}, modes)

	dir := t.TempDir()
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "bootstrap")))
	require.ErrorContains(t, pack(archive, dir, "bootstrap"), "no plain file")
}

// The linker leaves a version out, silently, that is meant for a variable which is not there.
func TestVersionIsStamped(t *testing.T) {
	const version = "v1.2.3-4-gabcdef0-dirty"
	dir := t.TempDir()
	require.NoError(t, lambda("dynamolock").build(t.Context(), "../..", dir, version))
	b, err := os.ReadFile(filepath.Join(dir, "bootstrap"))
	require.NoError(t, err)
	require.True(t, bytes.Contains(b, []byte(version)))
	require.NotContains(t, describe(t.Context()), "\n")
}

// Each function has an archive, each archive that the template deploys is made, and what is in it is what the template starts.
func TestTemplateDeploysWhatIsBuilt(t *testing.T) {
	tmpl, err := template.Load("../../template.yaml")
	require.NoError(t, err)
	var deployed []string
	for _, m := range regexp.MustCompile(`CodeUri: dist/(\w+)\.zip`).FindAllStringSubmatch(tmpl.Text, -1) {
		deployed = append(deployed, m[1])
	}
	var built, functions []string
	for _, a := range apps {
		if a.binary == "bootstrap" {
			built = append(built, a.name)
			require.Equal(t, "arm64", a.arch)
		}
		functions = append(functions, a.name)
	}
	require.ElementsMatch(t, built, deployed)

	mains, err := filepath.Glob("../../functions/*/main.go")
	require.NoError(t, err)
	for i := range mains {
		mains[i] = filepath.Base(filepath.Dir(mains[i]))
	}
	require.Equal(t, slices.Sorted(slices.Values(mains)), slices.Sorted(slices.Values(functions)))
}
