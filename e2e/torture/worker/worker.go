//go:build unix

// Package worker is one holder of a campaign: a process that takes locks, writes what they guard, gives them back, and writes
// down what it believes.
package worker

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
	"github.com/cloudlease/cloudlease/e2e/torture/service"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// Finish is the command after which a worker takes every lock once more and ends in good order.
const Finish = "finish"

// Config says who a worker is.
type Config struct {
	Store   string
	URL     string // of the engine, through the worker's proxy
	Guarded string // of the engine that has what the locks guard, if it is another
	Name    string
	Life    int
	Seed    uint64
	Locks   int
	History string // the file to append to
}

// Args are the arguments that Parse makes c of.
func (c Config) Args() []string {
	return []string{
		"-store", c.Store, "-url", c.URL, "-guarded", c.Guarded, "-name", c.Name, "-life", fmt.Sprint(c.Life), "-seed", fmt.Sprint(c.Seed),
		"-locks", fmt.Sprint(c.Locks), "-history", c.History,
	}
}

// Parse reads arguments.
func Parse(args []string) (Config, error) {
	var c Config
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.StringVar(&c.Store, "store", "", "")
	flags.StringVar(&c.URL, "url", "", "")
	flags.StringVar(&c.Guarded, "guarded", "", "")
	flags.StringVar(&c.Name, "name", "", "")
	flags.IntVar(&c.Life, "life", 0, "")
	flags.Uint64Var(&c.Seed, "seed", 0, "")
	flags.IntVar(&c.Locks, "locks", 1, "")
	flags.StringVar(&c.History, "history", "", "")
	return c, flags.Parse(args)
}

// LockName is the name of the nth lock.
func LockName(n int) string { return fmt.Sprintf("lock-%d", n+1) }

// worker is a running worker.
type worker struct {
	Config
	log    *history.Writer
	said   lease.Observer // the library's own log
	clock  *Clock
	rand   *rand.Rand
	ttl    time.Duration
	client *lease.Client
	guard  fence.Guard
	ops    int // guarded operations begun

	current atomic.Pointer[lease.Lease]
}

// Run is a worker's life. It ends with ctx, releasing what it holds, or after Finish. Commands come one a line, each answered
// with a line on out; their end is the end of the worker's parent.
func Run(ctx context.Context, c Config, commands io.Reader, out io.Writer) (err error) {
	file, err := os.OpenFile(c.History, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := &worker{
		Config: c, log: history.NewWriter(file, c.Name, c.Life), clock: NewClock(),
		rand: rand.New(rand.NewPCG(c.Seed, uint64(c.Life))), //nolint:gosec // it shall be repeatable, and a life is not negative
	}
	logged, err := os.OpenFile(strings.TrimSuffix(c.History, ".jsonl")+".log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logged.Close()) }()
	slog.SetDefault(slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	w.said = lease.LogObserver(nil)
	w.log.Add(history.Event{Kind: history.Started, Value: strconv.Itoa(os.Getpid())})
	finish := make(chan struct{})
	go w.obey(commands, out, finish)
	left := watchLeaks()
	s, err := service.Find(c.Store)
	if err != nil {
		return err
	}
	opened, err := w.open(s)
	if err != nil {
		return err
	}
	w.live(ctx, finish)
	for _, o := range opened {
		o.Close()
	}
	w.log.Add(history.Event{Kind: history.Stopped, Err: left()})
	return w.log.Err()
}

// open makes the worker's client and guard.
func (w *worker) open(s service.Service) ([]service.Opened, error) {
	locks, err := s.Open(w.URL, w.clock.Now)
	if err != nil {
		return nil, err
	}
	opened := []service.Opened{locks}
	w.guard, w.ttl = locks.Guard, s.TTL()
	if w.Guarded != "" {
		guarded, err := s.Open(w.Guarded, w.clock.Now)
		if err != nil {
			return nil, err
		}
		w.guard, opened = guarded.Guard, append(opened, guarded)
	}
	w.client, err = lease.New(locks.Store, &lease.Options{
		TTL: w.ttl, Holder: w.Name, Observer: lease.ObserverFunc(w.observe),
	})
	return opened, err
}

// live works until ctx ends or until it is told to finish, and gives everything back.
func (w *worker) live(ctx context.Context, finish <-chan struct{}) {
	working, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { w.watchStalls(working) })
	defer watching.Wait()
	defer stop()
	for ctx.Err() == nil {
		select {
		case <-finish:
			w.sweep(ctx)
			w.close()
			return
		default:
			w.round(ctx)
		}
	}
	w.close()
}

// close closes the client, which releases what is held.
func (w *worker) close() {
	if l := w.current.Load(); l != nil {
		w.event(history.Leaving, l, nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := w.client.Close(ctx)
	if l := w.current.Load(); l != nil {
		w.event(history.Released, l, err)
	}
	if ctx.Err() != nil {
		w.found("closing the client took more than a minute: %v", err)
	}
}

// obey does what commands say.
func (w *worker) obey(commands io.Reader, out io.Writer, finish chan<- struct{}) {
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		command := strings.TrimSpace(lines.Text())
		if command == Finish {
			close(finish)
		} else if err := w.clock.Set(command); err != nil {
			w.found("%v", err)
		}
		_, _ = fmt.Fprintln(out, "ok")
	}
}

// The length of a stall that is worth a line, and how often it is looked for.
const (
	stall = 250 * time.Millisecond
	tick  = 50 * time.Millisecond
)

// watchStalls writes down when this process did not run: who does not run makes no progress.
func (w *worker) watchStalls(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for last := history.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := history.Now()
		if now-last > stall {
			w.log.Add(history.Event{Kind: history.Stalled, At: last, Until: now})
		}
		last = now
	}
}

// observe writes down renewals, and logs everything as users do.
func (w *worker) observe(e lease.Event) {
	w.said.Observe(e)
	if l := w.current.Load(); e.Kind == lease.Renewed && l != nil && l.Name() == e.Name && l.Token() == e.Token {
		w.believe(history.Renewed, l)
	}
}

// believe writes down until when l is trusted, in true time.
func (w *worker) believe(kind history.Kind, l *lease.Lease) {
	g := l.Grant()
	now, at := w.clock.Read()
	sent, ok := w.clock.TrueOf(g.Sent)
	if !ok {
		w.found("the lease on %q counts from an instant at which nobody read the clock", l.Name())
	}
	w.log.Add(history.Event{
		At: at, Kind: kind, Lock: l.Name(), Token: uint64(l.Token()), Holder: l.Holder(), Sent: sent,
		Until: at + g.Trust - w.client.Options().Margin - now.Fast(g.Sent),
	})
}

func (w *worker) event(kind history.Kind, l *lease.Lease, err error) {
	e := history.Event{Kind: kind, Lock: l.Name(), Token: uint64(l.Token()), Holder: l.Holder()}
	if err != nil {
		e.Err = err.Error()
	}
	w.log.Add(e)
}

// found writes a violation down.
func (w *worker) found(format string, args ...any) {
	w.log.Add(history.Event{Kind: history.Finding, Err: fmt.Sprintf(format, args...)})
}
