//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/check"
	"github.com/cloudlease/cloudlease/e2e/torture/service"
	"github.com/cloudlease/cloudlease/e2e/torture/worker"
)

// The scenes that are not described elsewhere: workers under random faults, and Lambda functions whose occurrences are delivered
// twice and more.
const (
	sceneWorkers = "workers"
	sceneLambda  = "lambda"
)

// workerCommand makes this program a worker.
const workerCommand = "worker"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var code int
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		code = work(ctx, os.Args[2:])
	} else {
		code = run(ctx, os.Args[1:], os.Stdout)
	}
	stop()
	os.Exit(code)
}

// work is the whole life of a worker's process.
func work(ctx context.Context, args []string) int {
	signal.Ignore(os.Interrupt) // an interrupt from the keyboard is for the campaign, which ends its workers
	c, err := worker.Parse(args)
	if err == nil {
		err = worker.Run(ctx, c, os.Stdin, os.Stdout)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// run is the whole campaign. It returns the exit code.
func run(ctx context.Context, args []string, out io.Writer) int {
	o := Options{}
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.Scene, "scene", sceneWorkers, "workers, beyond, or, on DynamoDB, lambda or restore")
	flags.IntVar(&o.Occurrences, "occurrences", 200, "how many occurrences of a job scene lambda delivers")
	flags.StringVar(&o.Store, "store", "dynamodb", "the store to torture: dynamodb, azblob or consul")
	flags.Uint64Var(&o.Seed, "seed", 0, "which faults come when; 0: a new one")
	flags.DurationVar(&o.For, "for", time.Minute, "how long the faults go on")
	flags.IntVar(&o.Workers, "workers", 4, "how many processes take locks")
	flags.IntVar(&o.Locks, "locks", 2, "how many locks they share")
	again := flags.String("check", "", "check the history in this directory again, and do nothing else")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *again != "" {
		return checkAgain(o, *again, out)
	}
	if flags.NArg() > 0 || o.Workers < 2 || o.Locks < 1 || o.For <= 0 {
		_, _ = fmt.Fprintln(out, "usage: torture [-store dynamodb|azblob|consul] [-seed n] [-for time] [-workers n] [-locks n]")
		return 2
	}
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano() / int64(time.Millisecond) % 1e9) //nolint:gosec // after 1970
	}
	play, known := scenes[o.Scene]
	if !known {
		_, _ = fmt.Fprintf(out, "unknown scene %q\n", o.Scene)
		return 2
	}
	bad, err := play(ctx, o, out)
	switch {
	case err != nil:
		_, _ = fmt.Fprintf(out, "torture: FAILED: %v\n", err)
		return 1
	case bad > 0:
		_, _ = fmt.Fprintf(out, "torture: FAILED: %d violations\n", bad)
		return 1
	}
	_, _ = fmt.Fprintln(out, "torture: ok")
	return 0
}

// checkAgain checks a history that was kept.
func checkAgain(o Options, dir string, out io.Writer) int {
	c := &campaign{Options: o}
	c.Dir = dir
	var err error
	if c.service, err = service.Find(o.Store); err == nil {
		var rep check.Report
		if rep, _, err = c.check(); err == nil {
			for _, v := range rep.Violations {
				_, _ = fmt.Fprintln(out, violation(v))
			}
			_, _ = fmt.Fprintf(out, "%d grants, %d violations\n", len(rep.Holds), len(rep.Violations))
			return min(len(rep.Violations), 1)
		}
	}
	_, _ = fmt.Fprintf(out, "torture: FAILED: %v\n", err)
	return 1
}

// scenes are what can be played; each returns the number of violations.
var scenes = map[string]func(context.Context, Options, io.Writer) (int, error){
	sceneWorkers: torture, sceneLambda: tortureLambdas, sceneRestore: torture, sceneBeyond: torture,
}

// tortureLambdas runs scene lambda.
func tortureLambdas(ctx context.Context, o Options, out io.Writer) (violations int, err error) {
	if o.Dir, err = os.MkdirTemp("", "cloudlease-torture-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	_, _ = fmt.Fprintf(out, "torture: scene=lambda seed=%d occurrences=%d\n", o.Seed, o.Occurrences)
	began := time.Now()
	l, err := newLambdas(ctx, o, out)
	if err == nil {
		err = l.play(ctx)
	}
	if err == nil {
		err = l.check(ctx)
	}
	if err == nil {
		err = l.checkSecrets()
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return 0, err
	}
	return l.print(time.Since(began)), nil
}

// torture runs a campaign and reports it. The history stays where something was wrong.
func torture(ctx context.Context, o Options, out io.Writer) (violations int, err error) {
	if o.Dir, err = os.MkdirTemp("", "cloudlease-torture-"); err != nil {
		return 0, err
	}
	var printed strings.Builder
	out = io.MultiWriter(out, &printed)
	_, _ = fmt.Fprintf(out, "torture: scene=%s store=%s seed=%d for=%v workers=%d locks=%d\n", o.Scene, o.Store, o.Seed, o.For, o.Workers, o.Locks)
	c, err := newCampaign(ctx, o)
	switch {
	case err != nil:
	case o.Scene == sceneRestore:
		err = c.restores(ctx)
	default:
		err = c.run(ctx)
	}
	err = errors.Join(err, c.Close())
	if err != nil {
		return 0, fmt.Errorf("%w; what was written down is in %s", err, o.Dir)
	}
	rep, events, err := c.check()
	if err != nil {
		return 0, err
	}
	idle := c.idleKinds()
	if len(rep.TakeOvers) == 0 && o.Scene == sceneWorkers {
		idle = append(idle, "take-over")
	}
	c.print(out, rep)
	leaks, err := c.leaks(printed.String())
	if err != nil {
		return 0, err
	}
	if len(rep.Violations) == 0 && len(idle) == 0 && len(leaks) == 0 {
		return 0, os.RemoveAll(o.Dir)
	}
	for _, kind := range idle {
		_, _ = fmt.Fprintf(out, "  VIOLATION: there was no %s: the campaign proves too little\n", kind)
	}
	for _, leak := range leaks {
		_, _ = fmt.Fprintf(out, "  VIOLATION: %s\n", leak)
	}
	if len(rep.Violations)+len(leaks) > 0 {
		if err := c.keep(out, rep, events); err != nil {
			return 0, err
		}
	}
	return len(rep.Violations) + len(idle) + len(leaks), nil
}

// idleKinds are the faults that were to be injected and were not.
func (c *campaign) idleKinds() []string {
	if c.Scene == sceneRestore {
		return nil
	}
	return slices.DeleteFunc(c.kinds(), func(kind string) bool { return c.counts[kind] > 0 })
}
