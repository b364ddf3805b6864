package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// compare builds two copies of the module's source, in directories with names of different lengths and the second one with a build
// cache of its own, and wants the same sums.
func compare(ctx context.Context, version string, says io.Writer) error {
	tmp, err := os.MkdirTemp("", "cloudlease-dist-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a directory for temporary files
	var sums [2][]byte
	for i, place := range []string{"one", filepath.Join("another", "place")} {
		root := filepath.Join(tmp, place)
		if err := copySource(".", root); err != nil {
			return fmt.Errorf("copy the source: %w", err)
		}
		if i == 1 {
			if err := os.Setenv("GOCACHE", filepath.Join(tmp, "cache")); err != nil {
				return err
			}
		}
		out := filepath.Join(root, "dist")
		if err := build(ctx, root, out, version, io.Discard); err != nil {
			return err
		}
		if sums[i], err = os.ReadFile(filepath.Join(out, "SHA256SUMS")); err != nil {
			return err
		}
	}
	if !bytes.Equal(sums[0], sums[1]) {
		return fmt.Errorf("two builds of one source differ:\n%s%s", sums[0], sums[1])
	}
	_, err = fmt.Fprintf(says, "two builds of one source are the same:\n%s", sums[0])
	return err
}

// copySource copies what go build reads of the module at root: Go files, go.mod, go.sum, and the files that go along.
func copySource(root, to string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			made := path == filepath.Join(root, "dist") || name == "node_modules"
			if path != root && (strings.HasPrefix(name, ".") || made || name == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(name); !d.Type().IsRegular() || ext != ".go" && ext != ".mod" && ext != ".sum" && ext != ".json" {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file := filepath.Join(to, rel)
		return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, b, 0o644)) //nolint:gosec // for others to read
	})
}
