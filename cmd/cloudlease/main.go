// Command cloudlease runs commands under leases with fencing tokens, and shows and operates the locks of a store: a DynamoDB
// table, an Azure Blob Storage container or a Consul prefix. `cloudlease --help` explains it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/child"
	"github.com/cloudlease/cloudlease/lease"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == child.Argument {
		os.Exit(child.Supervise(os.Args[2:]))
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	a := &app{out: os.Stdout, err: os.Stderr, getenv: os.Getenv, tty: child.IsTerminal(2)}
	os.Exit(a.main(context.Background(), os.Args[1:]))
}

// main is the whole program. It returns the exit code.
func (a *app) main(ctx context.Context, args []string) int {
	a.dashed = slices.Contains(args, "--")
	root := a.command()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return codeDone
	}
	exit, ok := errors.AsType[*exitError](err)
	if !ok { // what cobra says of flags, arguments and commands
		exit = &exitError{code: codeUsage, err: err}
	}
	if exit.err != nil {
		a.say("%v", exit.err)
		_, _ = fmt.Fprint(a.err, exit.advice)
		switch {
		case exit.code == codeUsage:
			_, _ = fmt.Fprintf(a.err, "See %s --help.\n", cmd.CommandPath())
		case errors.Is(err, lease.ErrMisconfigured), errors.Is(err, lease.ErrDenied):
			_, _ = fmt.Fprintln(a.err, "cloudlease doctor checks the store, and says what to fix.")
		}
	}
	return exit.code
}

// interruptible ends with the first signal that asks the program to end.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, terminate)
}
