//go:build unix

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
	"syscall"
	"time"
)

// patience bounds the whole demonstration, the build included.
const patience = 10 * time.Minute

// errNoFence is how the demonstration without a fence ends when all goes as expected.
var errNoFence = errors.New("this is what happens without a fence: an older run has overwritten the newer result")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(code)
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, out io.Writer) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(out)
	fence := flags.String("fence", "on", "on, or off to see what a stale write does where no fence refuses it")
	svg := flags.String("svg", "", "where the picture goes (default docs/demo.svg in the module)")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 || *fence != "on" && *fence != "off" {
		_, _ = fmt.Fprintf(out, "usage: demo [-fence=on|off] [-svg file]\n")
		return 2
	}
	counts, err := demo(ctx, *fence == "on", *svg, out)
	if err != nil {
		_, _ = fmt.Fprintf(out, "\ndemo: FAILED: %s\n", strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
		return 1
	}
	_, _ = fmt.Fprintf(out, "\ndemo: ok %s\n", counts)
	return 0
}

// demo plays the scenes and reports them.
func demo(ctx context.Context, fence bool, svg string, out io.Writer) (counts Counts, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	root, err := moduleRoot(ctx)
	if err != nil {
		return counts, err
	}
	w, err := newWorld(ctx, out, root, fence)
	defer func() { err = errors.Join(err, w.Close()) }()
	if err != nil {
		return counts, err
	}
	if err := w.play(ctx); err != nil {
		return counts, err
	}
	counts, err = w.report(ctx)
	if err != nil {
		return counts, err
	}
	if svg == "" {
		svg = filepath.Join(root, "docs", "demo.svg")
	}
	if err := os.WriteFile(svg, w.picture().SVG(), 0o644); err != nil { //nolint:gosec // a picture for everybody
		return counts, fmt.Errorf("write the picture: %w", err)
	}
	w.say("\nThe picture of this run: %s", svg)
	return counts, nil
}

// moduleRoot is the directory of the module that the demonstration is started in.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for the module: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == os.DevNull {
		return "", errors.New("this directory is in no Go module; start the demonstration in a checkout of cloudlease")
	}
	return filepath.Dir(file), nil
}
