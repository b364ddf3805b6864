package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cloudlease/cloudlease/functions/internal/logs"
)

func main() {
	logs.Start(os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := serve(ctx, os.Getenv)
	stop()
	if err != nil {
		slog.Error("the function ends", slog.String("err", err.Error()))
		os.Exit(1)
	}
}

// drain is how long a run has to end after this process was asked to.
const drain = 8 * time.Second

// serve answers the host on the port that it has chosen, until ctx ends; the contexts of runs end with it, and are waited for.
func serve(ctx context.Context, getenv func(string) string) error {
	port := getenv("FUNCTIONS_CUSTOMHANDLER_PORT")
	if port == "" {
		return errors.New("the environment variable FUNCTIONS_CUSTOMHANDLER_PORT is missing: the Functions host sets it")
	}
	h, err := newHandler(getenv)
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr: net.JoinHostPort("127.0.0.1", port), Handler: h.routes(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	return errors.Join(server.Shutdown(ending), h.client.Close(ending))
}
