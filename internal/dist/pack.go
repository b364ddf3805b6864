package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cloudlease/cloudlease/internal/archive"
)

// epoch is when everything in an archive was changed: the first instant that the format can write.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// pack makes an archive of the files in dir, the same whenever and by whomever they were made: sorted by name, with one time, and
// with modes that say no more than which one of them is a program.
func pack(to, dir, program string) error {
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
	files := make([]archive.File, len(names))
	for i, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if name == program {
			mode = 0o755
		}
		files[i] = archive.File{Name: name, Mode: mode, Data: data}
	}
	return archive.Write(to, func(w io.Writer) error { return archive.Zip(w, files, epoch) })
}
