package main

import (
	"archive/zip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// epoch is when everything in an archive was changed: the first instant that the format can write.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// pack makes an archive of the files in dir, the same whenever and by whomever they were made: sorted by name, with one time, and
// with modes that say no more than which one of them is a program.
func pack(archive, dir, program string) error {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is no plain file", path)
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(names)
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	w := zip.NewWriter(f)
	for _, name := range names {
		mode := fs.FileMode(0o644)
		if name == program {
			mode = 0o755
		}
		if err = add(w, filepath.Join(dir, filepath.FromSlash(name)), name, mode); err != nil {
			break
		}
	}
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

func add(w *zip.Writer, path, name string, mode fs.FileMode) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: epoch}
	h.SetMode(mode)
	to, err := w.CreateHeader(h)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, f)
	return err
}

// sum writes the archives' sums in the form that sha256sum -c reads in their directory.
func sum(to string, archives []string) error {
	var text strings.Builder
	for _, archive := range archives {
		b, err := os.ReadFile(archive)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(b), filepath.Base(archive))
	}
	return os.WriteFile(to, []byte(text.String()), 0o644) //nolint:gosec // for others to read
}
