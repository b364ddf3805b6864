//go:build linux

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// world is a store that tests can disturb, and the environment of the programs that use it.
type world struct {
	t    testing.TB
	url  string // of the store
	env  []string
	gate *gate
}

// newWorld serves an engine with an empty table.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := newEmptyWorld(t)
	_, err := emulator.Client(w.endpoint(), nil).CreateTable(t.Context(), dynamolock.CreateTableInput("locks"))
	require.NoError(t, err)
	return w
}

func newEmptyWorld(t testing.TB) *world {
	t.Helper()
	g := &gate{inner: emulator.NewEmbedded(), refused: map[string]string{}, answers: map[string]string{
		"DescribeTimeToLive": `{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}`,
	}}
	e, err := emulator.Serve(g)
	require.NoError(t, err)
	t.Cleanup(func() {
		g.hang(false)
		require.NoError(t, e.Close())
	})
	store := "dynamodb://locks?region=eu-west-1&endpoint=" + url.QueryEscape(e.URL)
	return &world{t: t, url: store, gate: g, env: []string{
		"CLOUDLEASE_STORE=" + store, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/nonexistent", "AWS_SHARED_CREDENTIALS_FILE=/nonexistent",
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "USER=operator", "TERM=dumb",
	}}
}

func (w *world) endpoint() string {
	u, err := url.Parse(w.url)
	require.NoError(w.t, err)
	return u.Query().Get("endpoint")
}

// gate stands before the engine: it keeps the requests in order, and can hang, refuse and answer by itself.
type gate struct {
	inner http.Handler

	mu      sync.Mutex
	log     []sent
	refused map[string]string // by operation: an error code
	answers map[string]string // by operation: instead of the engine's
	hanging chan struct{}
	offset  time.Duration // of the Date that is told
}

// sent is a request that arrived.
type sent struct {
	op   string
	at   time.Time
	body string
	took time.Duration // until it was answered
}

func (g *gate) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	g.mu.Lock()
	began, n := time.Now(), len(g.log)
	g.log = append(g.log, sent{op: op, at: began, body: string(body)})
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.log[n].took = time.Since(began)
	}()
	hanging, code, answer, offset := g.hanging, g.refused[op], g.answers[op], g.offset
	g.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
		return
	}
	h := rw.Header()
	h.Set("Content-Type", "application/x-amz-json-1.0")
	h.Set("X-Amzn-Requestid", "GATE")
	date := time.Now().Add(offset).UTC().Format(http.TimeFormat)
	switch {
	case code != "":
		h.Set("Date", date)
		rw.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(rw).Encode(map[string]string{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": "refused on purpose"})
	case answer != "":
		h.Set("Date", date)
		_, _ = io.WriteString(rw, answer)
	default:
		r.Body = io.NopCloser(bytes.NewReader(body))
		if offset != 0 {
			rw = &dated{rw, date}
		}
		g.inner.ServeHTTP(rw, r)
	}
}

// dated is an answer with another Date.
type dated struct {
	http.ResponseWriter
	date string
}

func (d *dated) WriteHeader(status int) {
	d.Header().Set("Date", d.date)
	d.ResponseWriter.WriteHeader(status)
}

// tell sets the Date of answers wrong.
func (g *gate) tell(offset time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offset = offset
}

// hang makes every request hang, or lets them fail.
func (g *gate) hang(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on && g.hanging == nil {
		g.hanging = make(chan struct{})
	} else if !on && g.hanging != nil {
		close(g.hanging)
		g.hanging = nil
	}
}

func (g *gate) refuse(op, code string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused[op] = code
}

func (g *gate) answer(op, body string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers[op] = body
}

// requests are those so far that name a lock.
func (g *gate) requests(lock string) (all []sent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.log {
		if strings.Contains(s.body, strconv.Quote(lock)) {
			all = append(all, s)
		}
	}
	return all
}

// result is how a program ended.
type result struct {
	out, err string
	code     int
}

// cli runs the program to its end.
func (w *world) cli(args ...string) result {
	w.t.Helper()
	return w.with("", args...)
}

// with is cli with a standard input.
func (w *world) with(stdin string, args ...string) result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cmd := w.command(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	require.NoError(w.t, ctx.Err(), "it did not end: %s", errs.String())
	return result{out.String(), errs.String(), codeOf(w.t, err)}
}

// ok runs the program, which has to succeed, and returns its standard output.
func (w *world) ok(args ...string) string {
	w.t.Helper()
	r := w.cli(args...)
	require.Zero(w.t, r.code, "%v: %s", args, r.err)
	return r.out
}

func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = w.env
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// codeOf is a program's end as a shell tells it.
func codeOf(t testing.TB, err error) int {
	t.Helper()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		require.NoError(t, err)
		return 0
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return exit.ExitCode()
}

// wrapper is a run in the background.
type wrapper struct {
	*exec.Cmd
	t    testing.TB
	errs *bytes.Buffer
	done chan struct{}
	code int
}

// start begins a run of the program.
func (w *world) start(args ...string) *wrapper {
	w.t.Helper()
	c := &wrapper{Cmd: w.command(context.WithoutCancel(w.t.Context()), args...), t: w.t, errs: &bytes.Buffer{}, done: make(chan struct{})}
	c.Stderr = c.errs
	require.NoError(w.t, c.Start())
	go func() {
		defer close(c.done)
		err := c.Wait()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if ok {
			c.code = exit.ExitCode()
		}
	}()
	w.t.Cleanup(func() {
		_ = c.Process.Kill()
		<-c.done
	})
	return c
}

// end waits for the program's end and returns its code.
func (c *wrapper) end() int {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		require.Fail(c.t, "it did not end")
	}
	return c.code
}

func (c *wrapper) signal(sig syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.Process.Signal(sig))
}

// eventually waits until what is true. It gives up after so long that only something that never comes does.
func eventually(t testing.TB, message string, what func() bool) {
	t.Helper()
	for until := time.Now().Add(45 * time.Second); !what(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(until), message)
	}
}

// alive tells whether a process exists and is no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z' && rest[0] != 'X'
}

// token is the token that status shows.
func (w *world) token(name string) string {
	w.t.Helper()
	return strconv.FormatUint(w.status(name).Token, 10)
}

// status is what status shows of a lock.
func (w *world) status(name string) (s status) {
	w.t.Helper()
	require.NoError(w.t, json.Unmarshal([]byte(w.ok("status", name, "-o", "json")), &s))
	return s
}

type status struct {
	Name, State, Holder, Since, Expires string
	Token                               uint64
	Job                                 struct{ Running, Started, Finished string }
	Broken                              *struct {
		By, Why, At string
		Token       uint64
	}
}
