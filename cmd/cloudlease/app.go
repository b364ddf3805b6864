package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/backend"
	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/child"
	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/render"
	"github.com/cloudlease/cloudlease/lease"
)

// app is what all commands share: the streams, the environment and the global flags.
type app struct {
	out, err io.Writer
	getenv   func(string) string
	tty      bool // err is a terminal
	dashed   bool // the arguments have a --

	mu    sync.Mutex // of what goes to err
	shown bool       // a line that says what is waited for is on the terminal

	store  string // --store
	output string // -o
}

// place is the store that the flag or the environment names.
func (a *app) place() (backend.Backend, error) {
	url := a.store
	if url == "" {
		url = a.getenv(backend.Variable)
	}
	return backend.Parse(url, a.getenv)
}

// open makes the store.
func (a *app) open(ctx context.Context) (lease.Store, error) {
	b, err := a.place()
	if err != nil {
		return nil, err
	}
	return b.Open(ctx)
}

// client makes a client for an operator's command, which takes a lock for a moment only.
func (a *app) client(ctx context.Context) (*lease.Client, error) {
	s, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	return lease.New(s, &lease.Options{TTL: max(s.Limits().MinTTL, operatorTTL), Observer: lease.ObserverFunc(func(lease.Event) {})})
}

// operatorTTL is for locks that an operator's command takes: long enough for a slow network, short enough for a crash.
const operatorTTL = 10 * time.Second

// json tells whether results are written as JSON.
func (a *app) json() bool { return a.output == "json" }

// say tells the user something. It goes to stderr: stdout is for results, and for a command's own output.
func (a *app) say(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wipe()
	_, _ = fmt.Fprintf(a.err, "cloudlease: %s\n", render.Lines(fmt.Sprintf(format, args...)))
}

// wipe takes the line of a wait off the terminal. a.mu is held.
func (a *app) wipe() {
	if a.shown {
		_, _ = fmt.Fprint(a.err, "\r\x1b[K")
		a.shown = false
	}
}

// did is what an operator's command has done, as JSON tells it.
type did struct {
	Did        string      `json:"did"`
	Name       string      `json:"name,omitempty"`
	Token      lease.Token `json:"token,omitempty"`
	Occurrence *string     `json:"occurrence,omitempty"`
	Store      string      `json:"store,omitempty"`
	Found      string      `json:"found,omitempty"`
}

// tell writes what was done as the result of a command: v, or text for people.
func (a *app) tell(v did, text string) error {
	if a.json() {
		return render.JSON(a.out, v)
	}
	_, err := fmt.Fprintln(a.out, render.Plain(text))
	return err
}

// patience is how long something may take before a terminal is told what is being waited for.
const patience = time.Second

// waitFor shows what is being waited for, after a second, if stderr is a terminal. what is asked every second. Call done when
// the wait is over; nothing is left on the terminal then.
func (a *app) waitFor(what func() string) (done func()) {
	if !a.tty {
		return func() {}
	}
	began := time.Now()
	over := false
	var timer *time.Timer
	a.mu.Lock()
	defer a.mu.Unlock()
	timer = time.AfterFunc(patience, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if over {
			return
		}
		_, _ = fmt.Fprintf(a.err, "\r\x1b[K%s", oneLine(what(), time.Since(began).Round(time.Second), child.Width(2)))
		a.shown = true
		timer.Reset(patience)
	})
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !over {
			a.wipe()
		}
		over = true
		timer.Stop()
	}
}

// oneLine is what is waited for, on a line that a terminal of that width does not wrap: only one line is taken off it again.
func oneLine(what string, since time.Duration, width int) string {
	text, end := []rune("cloudlease: "+render.Plain(what)), fmt.Sprintf(" (%v)", since)
	if room := max(width-1-len(end), 0); len(text) > room {
		text = text[:room]
	}
	return string(text) + end
}

// asking is waitFor for one request or a few.
func (a *app) asking(ctx context.Context, what string) (context.Context, func()) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("no answer within a minute"))
	done := a.waitFor(func() string { return what })
	return ctx, func() {
		done()
		cancel()
	}
}

// quoted is text as a word of a shell.
func quoted(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,=", r)
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// who is how an operator is recorded.
func who(getenv func(string) string) string {
	name := getenv("USER")
	if name == "" {
		name = fmt.Sprintf("uid %d", os.Getuid())
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.60s@%.60s", name, host)
}
