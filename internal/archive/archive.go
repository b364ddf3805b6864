// Package archive packs what is shipped, the same bytes from the same files wherever and by whomever they were made.
package archive

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// File is one in an archive. Nothing of the machine gets in: neither times nor owners nor a mask of modes.
type File struct {
	Name string
	Mode fs.FileMode
	Data []byte
}

// Tar writes a compressed tar of files, all changed at one time.
func Tar(w io.Writer, files []File, at time.Time) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Mode: int64(f.Mode), Size: int64(len(f.Data)), ModTime: at.UTC(), Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.Data); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// Zip writes a zip of files, all changed at one time.
func Zip(w io.Writer, files []File, at time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(f.Mode)
		to, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := to.Write(f.Data); err != nil {
			return err
		}
	}
	return z.Close()
}

// Write makes the file at path of what fill writes.
func Write(path string, fill func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}

// Sums writes the sums of the files at paths in the form that sha256sum -c reads in their directory.
func Sums(to string, paths []string) error {
	var text strings.Builder
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(b), filepath.Base(path))
	}
	return os.WriteFile(to, []byte(text.String()), 0o644) //nolint:gosec // for others to read
}
