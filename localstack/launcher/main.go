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
	"path/filepath"
	"syscall"
)

// superviseCommand makes this program the supervisor.
const superviseCommand = "supervise"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "launcher:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("say up, down or endpoints")
	}
	command, args := args[0], args[1:]
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	dir := flags.String("dir", filepath.Join("localstack", ".run"), "where the state, the logs and the endpoints are")
	free := flags.Bool("free", false, "take free ports")
	ports := usual
	flags.IntVar(&ports.AWS, "aws", usual.AWS, "the port of ministack")
	flags.IntVar(&ports.Dynalite, "dynalite", usual.Dynalite, "the port of dynalite")
	flags.IntVar(&ports.Azurite, "azurite", usual.Azurite, "the port of Azurite")
	flags.IntVar(&ports.Consul, "consul", usual.Consul, "the port of Consul's HTTP API")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is one word too many", flags.Arg(0))
	}
	if *free {
		ports = Ports{}
	}
	if command == "endpoints" {
		_, err := io.WriteString(out, environment(services(ports), ports.urls()))
		return err
	}
	s, err := newState(*dir)
	if err != nil {
		return err
	}
	switch command {
	case "up":
		return up(ctx, s, ports, out)
	case "down":
		return down(ctx, s, out)
	case superviseCommand:
		return supervise(ctx, s, ports)
	}
	return fmt.Errorf("%q is no command; say up, down or endpoints", command)
}
