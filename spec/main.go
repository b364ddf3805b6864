// Spec checks the model of the lease-and-fence protocol (lease.pml) with Spin: the protocol as it is has to hold, and each
// known mistake has to be found.
//
//	go run ./spec               # all checks, two at a time
//	go run ./spec -only NAME    # one
//	go run ./spec -trace NAME   # its counter-example, as short as there is one
//
// It needs a C compiler, and Spin on the PATH or a Debian system whose package lists are current.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
)

func main() {
	only := flag.String("only", "", "run the check of this name")
	trace := flag.String("trace", "", "show the counter-example of this check")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only, *trace)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "spec:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, trace string) error {
	model, err := filepath.Abs(filepath.Join("spec", "lease.pml"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(model); err != nil {
		return fmt.Errorf("run it in the top folder of the checkout: %w", err)
	}
	tools, err := findTools(ctx)
	if err != nil {
		return err
	}
	if trace != "" {
		chosen, err := choose(trace)
		if err != nil {
			return err
		}
		return tools.trace(ctx, model, chosen[0])
	}
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	return table(ctx, tools, model, chosen)
}

func choose(name string) ([]check, error) {
	if name == "" {
		return checks, nil
	}
	var names []string
	for _, c := range checks {
		if c.name == name {
			return []check{c}, nil
		}
		names = append(names, c.name)
	}
	return nil, fmt.Errorf("there is no check %q, only %s", name, strings.Join(names, ", "))
}

const row = "%-22s %-14s %-14s %10s %6s %7s %7s\n"

// table runs the checks, two at a time, and prints a line for each in their order.
func table(ctx context.Context, t tools, model string, chosen []check) error {
	results := make([]chan result, len(chosen))
	turns := make(chan struct{}, 2)
	var all sync.WaitGroup
	defer all.Wait()
	for i, c := range chosen {
		results[i] = make(chan result, 1)
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			results[i] <- t.check(ctx, model, c)
		})
	}
	fmt.Printf(row, "check", "expected", "found", "states", "depth", "s", "MB")
	var failed []error
	for i, c := range chosen {
		r := <-results[i]
		found := r.violated
		if r.err != nil {
			found = "?"
			failed = append(failed, fmt.Errorf("%s: %w", c.name, r.err))
		} else if r.violated != c.violates {
			failed = append(failed, fmt.Errorf("%s: expected %s, found %s", c.name, shown(c.violates), shown(r.violated)))
		}
		fmt.Printf(row, c.name, shown(c.violates), shown(found), r.states, r.depth, r.seconds, r.megabytes)
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	fmt.Printf("spec: ok, %d checks as expected\n", len(chosen))
	return nil
}

// shown is how the outcome of a check is printed; an empty one is a search of all states without a violation.
func shown(violated string) string {
	if violated == "" {
		return "holds"
	}
	return violated
}
