package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// EnginesVariable is the environment variable that, set to 1, adds the engines that are processes of their own.
const EnginesVariable = "CLOUDLEASE_ENGINES"

// Engine is a running engine. Its methods are safe for concurrent use.
type Engine struct {
	URL string // such as http://127.0.0.1:41735

	close  func() error
	exited <-chan struct{} // nil where the engine is no process
}

// Close ends the engine without a farewell, as a crash would, and waits until it is gone. Further calls return what the
// first one returned.
func (e *Engine) Close() error { return e.close() }

// Exited is closed when the engine's process has ended, for whatever reason. An engine in this process never says so.
func (e *Engine) Exited() <-chan struct{} { return e.exited }

// Starter starts one kind of engine.
type Starter struct {
	Name  string
	Start func(ctx context.Context) (*Engine, error) // ctx bounds the start only
}

// Engines lists the engines that tests shall run on: the embedded one, and with CLOUDLEASE_ENGINES=1 dynalite. An engine
// that is listed and does not start is a failure; nothing is skipped silently.
func Engines() []Starter {
	all := []Starter{{Name: "embedded", Start: func(context.Context) (*Engine, error) { return Serve(NewEmbedded()) }}}
	if os.Getenv(EnginesVariable) == "1" {
		all = append(all, Starter{Name: "dynalite", Start: func(ctx context.Context) (*Engine, error) {
			return StartDynalite(ctx, Options{})
		}})
	}
	return all
}

// TB is the part of testing.TB that For needs. It is declared here so that programs which embed an engine do not link
// the testing package.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(f func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// For starts the engine for one test and ends it with the test.
func (s Starter) For(tb TB) *Engine {
	tb.Helper()
	e, err := s.Start(tb.Context())
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Errorf("close %s: %v", s.Name, err)
		}
	})
	return e
}

// Serve serves h on a free port of the loopback address.
func Serve(h http.Handler) (*Engine, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("serve an engine on the loopback address: %w", err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	return &Engine{
		URL: "http://" + l.Addr().String(),
		close: sync.OnceValue(func() error {
			err := srv.Close()
			if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
				err = errors.Join(err, serveErr)
			}
			return err
		}),
	}, nil
}
