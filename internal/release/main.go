// Command release makes what a release consists of, from this checkout, and publishes nothing: the command for six platforms, each
// in an archive with the licenses of all that is linked, the archives of the functions that make build has left in dist, a bill of
// materials per program (CycloneDX), and SHA256SUMS. The same source and Go give the same bytes.
//
//	go run ./internal/release -sbom .bin/cyclonedx-gomod [-out dist/release]
//
// It fails if a linked module has a license that is not one of a list, or none that is known.
package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/internal/archive"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := release{says: os.Stdout}
	flag.StringVar(&r.out, "out", filepath.Join("dist", "release"), "the directory to make anew")
	flag.StringVar(&r.dist, "functions", "dist", "where make build has left the functions")
	flag.StringVar(&r.sbom, "sbom", "", "the program cyclonedx-gomod; without it no bills of materials, and no look at licenses")
	flag.Parse()
	if err := r.make(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

type release struct {
	out, dist, sbom string
	says            io.Writer
}

// program is a binary that is shipped.
type program struct {
	name string // of its archive, without the extension
	path string
	info *buildinfo.BuildInfo
}

var platforms = []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64", "windows/amd64", "windows/arm64"}

func (r release) make(ctx context.Context) error {
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "cloudlease-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a directory for temporary files
	var commands []program
	for _, platform := range platforms {
		p, err := command(ctx, tmp, platform)
		if err != nil {
			return fmt.Errorf("build the command for %s: %w", platform, err)
		}
		commands = append(commands, p)
	}
	functions, err := r.functions()
	if err != nil {
		return err
	}
	all := slices.Concat(commands, functions)
	version, at, err := stamp(commands)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(r.says, "%s of %s\n", version, at.Format(time.RFC3339)) // the files are what counts
	if strings.Contains(version, "+dirty") {
		_, _ = fmt.Fprintln(r.says, "the checkout has changes that are not committed: this is no release")
	}
	texts, err := licenseTexts(ctx, all)
	if err != nil {
		return err
	}
	if err := r.archives(commands, version, at, texts); err != nil {
		return err
	}
	if r.sbom != "" {
		if err := r.bills(ctx, all, version); err != nil {
			return err
		}
	}
	return sums(r.out)
}

// sums writes SHA256SUMS of all files in dir.
func sums(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*")) // sorted by name
	if err != nil {
		return err
	}
	return archive.Sums(filepath.Join(dir, "SHA256SUMS"), files)
}

// command builds cloudlease for a platform. The version is what Go stamps by itself: the tag of the commit, or a pseudo-version.
func command(ctx context.Context, tmp, platform string) (program, error) {
	goos, goarch, _ := strings.Cut(platform, "/")
	name := "cloudlease"
	if goos == "windows" {
		name += ".exe"
	}
	path := filepath.Join(tmp, goos+"_"+goarch, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", path, "./cmd/cloudlease")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return program{}, err
	}
	info, err := buildinfo.ReadFile(path)
	return program{name: "cloudlease_" + goos + "_" + goarch, path: path, info: info}, err
}

// functions are the binaries of the archives in dist.
func (r release) functions() ([]program, error) {
	archives, err := filepath.Glob(filepath.Join(r.dist, "*.zip"))
	if err != nil || len(archives) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s has no archives of functions: run make build first", r.dist))
	}
	var found []program
	for _, zip := range archives {
		name := strings.TrimSuffix(filepath.Base(zip), ".zip")
		path := filepath.Join(r.dist, name, "bootstrap")
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			path = filepath.Join(r.dist, name, name) // an Azure app's program has the app's name
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found = append(found, program{name: "function_" + name, path: path, info: info})
	}
	return found, nil
}

// stamp is the version that all commands have, and the time of its commit.
func stamp(commands []program) (version string, at time.Time, err error) {
	for _, p := range commands {
		if version != "" && version != p.info.Main.Version {
			return "", at, fmt.Errorf("the checkout has changed while it was built: %s and %s", version, p.info.Main.Version)
		}
		version = p.info.Main.Version
		for _, s := range p.info.Settings {
			if s.Key == "vcs.time" {
				if at, err = time.Parse(time.RFC3339, s.Value); err != nil {
					return "", at, err
				}
			}
		}
	}
	if version == "" || version == "(devel)" || at.IsZero() {
		return "", at, errors.New("the binaries have no version: build in a git checkout, with git installed")
	}
	return version, at, nil
}

// archives packs the commands, and takes over the functions' archives as they are.
func (r release) archives(commands []program, version string, at time.Time, texts []byte) error {
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	for _, p := range commands {
		binary, err := os.ReadFile(p.path)
		if err != nil {
			return err
		}
		files := []archive.File{
			{Name: filepath.Base(p.path), Mode: 0o755, Data: binary},
			{Name: "LICENSE", Mode: 0o644, Data: license},
			{Name: "THIRD_PARTY_LICENSES.txt", Mode: 0o644, Data: texts},
		}
		pack, ext := archive.Tar, ".tar.gz"
		if strings.HasSuffix(p.path, ".exe") {
			pack, ext = archive.Zip, ".zip"
		}
		name := strings.Replace(p.name, "cloudlease_", "cloudlease_"+version+"_", 1)
		if err := archive.Write(filepath.Join(r.out, name+ext), func(w io.Writer) error { return pack(w, files, at) }); err != nil {
			return err
		}
	}
	functions, err := filepath.Glob(filepath.Join(r.dist, "*.zip"))
	if err != nil {
		return err
	}
	for _, zip := range functions {
		b, err := os.ReadFile(zip)
		if err != nil {
			return err
		}
		name := "function_" + version + "_" + filepath.Base(zip)
		if err := os.WriteFile(filepath.Join(r.out, name), b, 0o644); err != nil { //nolint:gosec // for others to read
			return err
		}
	}
	return os.WriteFile(filepath.Join(r.out, "THIRD_PARTY_LICENSES.txt"), texts, 0o644) //nolint:gosec // for others to read
}
