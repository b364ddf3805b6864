// Command dist builds what is deployed, the same bytes from the same source and the same Go wherever and whenever it is built: the
// AWS Lambda functions for arm64 and the Azure function app for amd64, each as a directory and as an archive of it, with their
// sizes and the file SHA256SUMS.
//
//	go run ./internal/dist [-out dist]      builds
//	go run ./internal/dist -check           builds two copies of the source in directories of their own, and compares
//
// Each line that a function logs tells the version that git describes, or the one that is given with -version.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/cloudlease/cloudlease/internal/archive"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("out", "dist", "the directory to build into")
	check := flag.Bool("check", false, "build twice and compare")
	version := flag.String("version", "", "what the functions' logs call this version (default: as git describes it)")
	flag.Parse()
	if *version == "" {
		*version = describe(ctx)
	}
	run := func() error { return build(ctx, ".", *out, *version, os.Stdout) }
	if *check {
		run = func() error { return compare(ctx, *version, os.Stdout) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// describe is the version of the source here. Without git and its history it is unknown, which is no reason not to build.
func describe(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// app is one thing that is deployed.
type app struct {
	name   string   // of its archive, and of its package below functions/
	arch   string   // GOARCH
	binary string   // what the platform starts
	args   []string // of go build
	files  []string // of its package that go along
}

func lambda(name string) app {
	return app{name: name, arch: "arm64", binary: "bootstrap", args: []string{"-tags", "lambda.norpc"}}
}

var apps = []app{
	{name: "azure", arch: "amd64", binary: "azure", files: []string{"host.json", "settlement/function.json"}},
	lambda("bloblease"), lambda("consullock"), lambda("dynamolock"), lambda("shardworker"),
}

// build makes all apps from the module at root, and says how large they are.
func build(ctx context.Context, root, out, version string, says io.Writer) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	var archives []string
	for _, a := range apps {
		dir := filepath.Join(out, a.name)
		if err := a.build(ctx, root, dir, version); err != nil {
			return fmt.Errorf("build %s: %w", a.name, err)
		}
		zip := dir + ".zip"
		if err := pack(zip, dir, a.binary); err != nil {
			return fmt.Errorf("pack %s: %w", a.name, err)
		}
		archives = append(archives, zip)
		for _, path := range []string{filepath.Join(dir, a.binary), zip} {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(out, path)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(says, "%-24s %5.1f MiB\n", name, float64(info.Size())/(1<<20)) // the files are what counts
		}
	}
	return archive.Sums(filepath.Join(out, "SHA256SUMS"), archives)
}

// build makes the app's directory anew.
func (a app) build(ctx context.Context, root, dir, version string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	src := filepath.Join(root, "functions", a.name)
	for _, name := range a.files {
		b, err := os.ReadFile(filepath.Join(src, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o644)); err != nil { //nolint:gosec // for others to read
			return err
		}
	}
	// Neither the place of the source nor the time of its checkout gets into the binary.
	stamp := "-ldflags=-s -w -X github.com/cloudlease/cloudlease/functions/internal/logs.version=" + version
	args := append([]string{"build", "-trimpath", "-buildvcs=false", stamp, "-o", filepath.Join(dir, a.binary)}, a.args...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./functions/"+a.name)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+a.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}
