// Command bench measures this project beside the bare SDKs and beside other lock libraries, in one run and on the same engines, and
// writes what it found: a table, results/latest.json and plots. `make bench` builds what it needs and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/bench/drive"
	"github.com/cloudlease/cloudlease/bench/report"
	"github.com/cloudlease/cloudlease/bench/scene"
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // libraries that log what is measured anyway
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if len(os.Args) == 6 && os.Args[1] == "-drive" {
		err = driver(ctx, os.Args[2:])
	} else {
		err = bench(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// driver is this program as the driver of a library in Go.
func driver(ctx context.Context, args []string) error {
	ttl, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	l, version, err := drive.Go(args[0], drive.Settings{URL: args[1], Table: args[2], TTL: time.Duration(ttl) * time.Millisecond})
	if err != nil {
		return err
	}
	return drive.Serve(ctx, l, version, os.Stdin, os.Stdout)
}

func bench(ctx context.Context) error {
	where := flag.String("dir", ".", "directory of this module")
	scenarios := flag.String("scenario", "", "scenarios to play, with commas; empty: all; a prefix such as contend stands for all that begin so")
	peers := flag.String("peers", "", "subjects that take part, with commas; empty: all")
	flag.Parse()
	dir, err := filepath.Abs(*where)
	if err != nil {
		return err
	}
	subjects, err := scene.Choose(split(*peers))
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	subjects = slices.DeleteFunc(subjects, func(s scene.Subject) bool {
		why := s.Missing(dir)
		if why != "" {
			say("left out: %s: %s", s.Name, why)
		}
		return why != ""
	})
	w := scene.NewWorld(dir, subjects, say)
	defer w.Close()
	play := slices.DeleteFunc(scene.Scenes(), func(sc scene.Scene) bool { return !chosen(sc.Name, split(*scenarios)) })
	if len(play) > 0 {
		err = w.Warm(ctx)
	}
	for _, sc := range play {
		if err := w.Play(ctx, sc); err != nil {
			say("%v", err)
		}
	}
	if err != nil {
		return err
	}
	return publish(dir, w)
}

// publish merges what was measured with what there was, and writes and prints what is made of it.
func publish(dir string, w *scene.World) error {
	path := filepath.Join(dir, "results", "latest.json")
	old, err := report.Load(path)
	if err != nil {
		return err
	}
	all := old.Merge(w.Results())
	for name, version := range w.Versions() {
		fmt.Fprintf(os.Stderr, "%-20s %s\n", name, version)
	}
	fmt.Print(all.Table(false))
	return errors.Join(all.Save(path), all.Publish(dir))
}

func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func chosen(name string, prefixes []string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
