package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// The Debian package that is unpacked where Spin is not installed.
const (
	debPackage = "spin=6.5.2+dfsg-1"
	debSum     = "55452ba139bae09a165363fdee18fe496913b4ae441d122280fbcbb48556502f" // amd64
)

const installHint = "install Spin 6.5 or later (Debian: apt-get install spin) and run it again"

// tools are the programs that a check needs.
type tools struct{ spin, cc string }

// findTools finds Spin and the C compiler that compiles what Spin generates.
func findTools(ctx context.Context) (tools, error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	cc, err := exec.LookPath(cc)
	if err != nil {
		return tools{}, fmt.Errorf("install gcc, or name a C compiler in CC: %w", err)
	}
	spin, err := exec.LookPath("spin")
	if err != nil {
		spin, err = unpackedSpin(ctx)
	}
	if err != nil {
		return tools{}, err
	}
	out, err := exec.CommandContext(ctx, spin, "-V").CombinedOutput() //nolint:gosec // found above
	if err != nil || !strings.HasPrefix(string(out), "Spin Version 6.") {
		return tools{}, fmt.Errorf("%s is not Spin 6 (it says %.40q); %s", spin, out, installHint)
	}
	return tools{spin: spin, cc: cc}, nil
}

// unpackedSpin is the Spin of the pinned Debian package, in the user's cache. It needs no root and installs nothing.
func unpackedSpin(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("spin is not on the PATH; %s", installHint)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for Spin: %w; %s", err, installHint)
	}
	dir := filepath.Join(cache, "cloudlease", "spin-"+debSum[:12])
	spin := filepath.Join(dir, "usr", "bin", "spin")
	if _, err := os.Stat(spin); err == nil {
		return spin, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "spin-new")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // what is left of it does no harm
	if err := unpack(ctx, tmp); err != nil {
		return "", fmt.Errorf("%w; %s", err, installHint)
	}
	if err := os.Rename(filepath.Join(tmp, "root"), dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return spin, nil
}

func unpack(ctx context.Context, dir string) error {
	if err := inDir(ctx, dir, "apt-get", "-q", "download", debPackage); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get left %d packages, not one", len(debs))
	}
	deb, err := os.ReadFile(debs[0])
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(deb); hex.EncodeToString(sum[:]) != debSum {
		return fmt.Errorf("the package %s is not the one that is pinned: its SHA-256 is %x", filepath.Base(debs[0]), sum)
	}
	return inDir(ctx, dir, "dpkg-deb", "-x", debs[0], "root")
}

// inDir runs a program and puts what it says into the error.
func inDir(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // the arguments are ours
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// result is what a check found.
type result struct {
	violated                          string // the property; empty: all states were searched and it holds
	states, depth, seconds, megabytes string
	err                               error
}

// check searches all states of the model.
func (t tools) check(ctx context.Context, model string, c check) result {
	dir, err := os.MkdirTemp("", "spec")
	if err != nil {
		return result{err: err}
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	out, err := t.search(ctx, dir, model, c, "-DCOLLAPSE")
	if err != nil {
		return result{err: err}
	}
	return judge(out)
}

// maxDepth is above the longest run of every check; a search that reaches it is a failure, not a result.
const maxDepth = "-m20000"

// search generates the verifier of a check in dir, compiles and runs it. how are options for the compiler.
func (t tools) search(ctx context.Context, dir, model string, c check, how ...string) (string, error) {
	if err := inDir(ctx, dir, t.spin, append([]string{"-a"}, append(c.flags(), model)...)...); err != nil {
		return "", err
	}
	args := append([]string{"-w", "-O2", "-DSAFETY", "-DMEMLIM=1400", "-o", "pan", "pan.c"}, how...)
	if err := inDir(ctx, dir, t.cc, args...); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "pan"), maxDepth, "-w22") //nolint:gosec // made above
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil {
		return "", ctx.Err()
	}
	return string(out), nil // its exit code tells less than what it says
}

var (
	violation = regexp.MustCompile(`assertion violated (\w+)`)
	stored    = regexp.MustCompile(`(\d+) states, stored`)
	reached   = regexp.MustCompile(`depth reached (\d+), errors: (\d+)`)
	elapsed   = regexp.MustCompile(`elapsed time ([\d.]+) seconds`)
	memory    = regexp.MustCompile(`([\d.]+)\s+total actual memory usage`)
)

// judge reads the verifier's report. A search that was cut short, or that failed otherwise than by a property, is an error.
func judge(report string) result {
	first := func(re *regexp.Regexp, n int) string {
		if m := re.FindStringSubmatch(report); m != nil {
			return m[n]
		}
		return ""
	}
	r := result{
		violated: first(violation, 1), states: first(stored, 1), depth: first(reached, 1),
		seconds: first(elapsed, 1), megabytes: first(memory, 1),
	}
	errs := first(reached, 2)
	switch {
	case r.states == "" || errs == "" || strings.Contains(report, "depth too small") || strings.Contains(report, "MEMLIM bound"):
		r.err = fmt.Errorf("the search is not complete:\n%s", report)
	case r.violated == "" && (errs != "0" || strings.Contains(report, "Search not completed")):
		r.err = fmt.Errorf("the model fails otherwise than by a property:\n%s", report)
	}
	return r
}

// trace prints the counter-example of a check, found breadth first, as a sequence of messages.
func (t tools) trace(ctx context.Context, model string, c check) error {
	dir, err := os.MkdirTemp("", "spec")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	c.bounds += " TELL"     // the same model is searched and replayed
	out, err := t.search(ctx, dir, model, c, "-DBFS")
	if err != nil {
		return err
	}
	trails, err := filepath.Glob(filepath.Join(dir, "*.trail"))
	if err != nil || len(trails) != 1 {
		return fmt.Errorf("%s has no counter-example:\n%s", c.name, out)
	}
	args := append([]string{"-T", "-k", trails[0], "-t"}, append(c.flags(), model)...)
	cmd := exec.CommandContext(ctx, t.spin, args...) //nolint:gosec // found above
	cmd.Dir = dir
	told, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("replay the counter-example: %w", err)
	}
	for line := range strings.SplitSeq(string(told), "\n") {
		if strings.HasPrefix(line, "t=") || strings.Contains(line, "assertion") {
			fmt.Println(line)
		}
	}
	return nil
}
