// Mutants shows what the test suite is able to find: it breaks a copy of the code in one documented way after the other and
// runs the tests that should notice. A mutant that survives fails the run.
//
//	go run ./internal/mutants                        # all
//	go run ./internal/mutants -only NAME             # one
//	go run ./internal/mutants -list                  # what there is
//	go run ./internal/mutants -only NAME -seeds 500  # does the simulation find it, and by which seed?
//	go run ./internal/mutants -only all -seeds 60    # the same of all that the simulation looks for
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "run the mutant of this name, or all")
	list := flag.Bool("list", false, "list the mutants and run none")
	seeds := flag.Int("seeds", 0, "run the store's simulation with this many seeds instead of the tests that should notice")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only, *list, *seeds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, list bool, seeds int) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	if seeds > 0 && len(chosen) > 1 {
		chosen = slices.DeleteFunc(chosen, func(m mutant) bool { return m.unsought != "" })
	}
	if list {
		for _, m := range chosen {
			fmt.Printf("%-34s %s\n", m.name, m.what)
		}
		return nil
	}
	tree, err := copyTree(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree) //nolint:errcheck // a temporary folder
	var survived []string
	for _, m := range chosen {
		began := time.Now()
		by, err := m.try(ctx, tree, seeds)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if by == "" {
			survived = append(survived, m.name)
			by = "SURVIVED"
			if seeds > 0 {
				by = fmt.Sprintf("NOT FOUND in %d seeds", seeds)
			}
		}
		fmt.Printf("%-34s %5.1f s  %s\n", m.name, time.Since(began).Seconds(), by)
	}
	if len(survived) > 0 {
		return fmt.Errorf("%d of %d survived: %s", len(survived), len(chosen), strings.Join(survived, ", "))
	}
	fmt.Printf("mutants: ok, %d killed\n", len(chosen))
	return nil
}

func choose(only string) ([]mutant, error) {
	all := slices.Concat(mutants, azureMutants, consulMutants, waitMutants)
	if only == "" || only == "all" {
		return all, nil
	}
	for _, m := range all {
		if m.name == only {
			return []mutant{m}, nil
		}
	}
	return nil, fmt.Errorf("there is no mutant %q; -list lists them", only)
}

// copyTree copies what git knows of or would add, so that the working tree is never touched.
func copyTree(ctx context.Context) (string, error) {
	files, err := exec.CommandContext(ctx, "git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return "", fmt.Errorf("list the files of the checkout: %w", err)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return "", err
	}
	for name := range strings.SplitSeq(strings.TrimSpace(string(files)), "\n") {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, not committed yet
		}
		if err == nil {
			err = writeFile(filepath.Join(dir, name), text)
		}
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

func writeFile(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// mutant is one way to break the code.
type mutant struct {
	name, what string
	file       string
	old, new   string // a text that occurs once, and what stands there instead
	old2, new2 string // likewise, if one change is not enough
	tests      string // packages, in words
	run        string // the tests to run, as for go test -run; empty: all

	seed     uint64 // that found it in the simulation of its store when all were last tried (make sim MUTANT=all)
	unsought string // why no simulation looks for it
}

// try applies m to the tree, runs its tests and undoes it. It returns the tests that failed, empty if none did.
func (m mutant) try(ctx context.Context, tree string, seeds int) (string, error) {
	file := filepath.Join(tree, m.file)
	text, err := os.ReadFile(file) //nolint:gosec // a file of the copy
	if err != nil {
		return "", err
	}
	broken := text
	for _, e := range [][2]string{{m.old, m.new}, {m.old2, m.new2}} {
		if e[0] == "" {
			continue
		}
		if n := bytes.Count(broken, []byte(e[0])); n != 1 {
			return "", fmt.Errorf("the text to change occurs %d times in %s, not once: %q", n, m.file, e[0])
		}
		broken = bytes.Replace(broken, []byte(e[0]), []byte(e[1]), 1)
	}
	if err := writeFile(file, broken); err != nil {
		return "", err
	}
	test := m.test
	if seeds > 0 {
		test = func(ctx context.Context, tree string) (string, error) { return m.simulate(ctx, tree, seeds) }
	}
	by, testErr := test(ctx, tree)
	return by, errors.Join(testErr, writeFile(file, text))
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

func (m mutant) test(ctx context.Context, tree string) (string, error) {
	packages := strings.Fields(m.tests)
	if out, err := goTool(ctx, tree, append([]string{"vet"}, packages...)...); err != nil {
		return "", fmt.Errorf("it does not compile:\n%s", out)
	}
	args := []string{"test", "-count=1", "-timeout=90s", "-failfast", "-skip=TestInRealTime|TestStoreOfMuteEngine|TestDemo"} // virtual time is enough
	if m.run != "" {
		args = append(args, "-run", m.run)
	}
	out, err := goTool(ctx, tree, append(args, packages...)...)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err == nil && !strings.Contains(out, "ok  "):
		return "", fmt.Errorf("no test ran:\n%s", out)
	case err == nil:
		return "", nil
	}
	names := failed.FindAllStringSubmatch(out, -1)
	if len(names) == 0 {
		return "killed: " + firstLine(out), nil // a hang, a deadlock in a bubble, a panic
	}
	return "killed by " + names[len(names)-1][1], nil
}

var failedSeed = regexp.MustCompile(`seed (\d+) has failed`)

// simulate looks for m by chance: in its own store's simulation, or in that of DynamoDB if it is no store's.
func (m mutant) simulate(ctx context.Context, tree string, seeds int) (string, error) {
	pkg := "./" + filepath.Dir(m.file)
	if _, err := os.Stat(filepath.Join(tree, pkg, "store.go")); pkg != "./memlease" && (err != nil || pkg == "./lease") {
		pkg = "./dynamolock"
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=10m", "-failfast", "-run=^TestSimulation", pkg) //nolint:gosec // of this program's table
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), fmt.Sprintf("CLOUDLEASE_SEEDS=%d", seeds))
	out, err := cmd.CombinedOutput()
	seed := failedSeed.FindSubmatch(out)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err == nil:
		return "", nil
	case seed == nil:
		return "found: " + firstLine(string(out)), nil
	}
	return "found by seed " + string(seed[1]), nil
}

func firstLine(s string) string {
	for line := range strings.SplitSeq(s, "\n") {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return line
		}
	}
	return "the tests failed"
}

func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // arguments of this program's table
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
