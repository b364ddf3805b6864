//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cloud: FAILED:", err)
		os.Exit(1)
	}
}

// run deploys, plays all and deletes. It finds the stand-in by the variable AWS_ENDPOINT_URL, as the SDKs do.
func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	flags := flag.NewFlagSet("cloud", flag.ContinueOnError)
	o := options{out: out}
	flags.IntVar(&o.occurrences, "occurrences", 3, "how many occurrences to deliver, beside that of the template's own schedule")
	flags.StringVar(&o.path, "template", "template.yaml", "what to deploy")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%q is one word too many", flags.Arg(0))
	case o.occurrences < 1 || o.occurrences > 300:
		return fmt.Errorf("%d occurrences are not between 1 and 300", o.occurrences)
	}
	c, err := connect(getenv("AWS_ENDPOINT_URL"))
	if err != nil {
		return err
	}
	return play(ctx, c, o)
}
