//go:build unix

package fakelambda

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// ErrNoProcess is returned by operations on the process when none is running.
var ErrNoProcess = errors.New("no process is running; invoke the function first")

// ErrClosed is returned by Invoke after Close.
var ErrClosed = errors.New("execution environment is closed")

// Stop says how a process is ended at a time-out and by Close.
type Stop int

// The ways to end a process.
const (
	// StopLikeLambda sends SIGTERM, and SIGKILL 500 ms later, if the process registered an extension (as
	// lambda.WithEnableSIGTERM does). Any other process gets SIGKILL at once, without a warning.
	StopLikeLambda Stop = iota
	// StopTerm sends SIGTERM, and SIGKILL 500 ms later, in any case.
	StopTerm
	// StopKill sends SIGKILL at once in any case, like a lost host.
	StopKill
)

// grace is the time between SIGTERM and SIGKILL. Lambda gives a process with an internal extension 300 to 600 ms.
const grace = 500 * time.Millisecond

// Options describe an environment.
type Options struct {
	// Bootstrap is the path of the function's binary.
	Bootstrap string
	// Env holds KEY=VALUE pairs for the process. They win over the few that it gets otherwise, but for the address of
	// the runtime API.
	Env []string
	// Timeout is the function's limit, which the runtime learns as a deadline for each invocation. 0: 3 s.
	Timeout time.Duration
	// InitTimeout limits the time from the start of the process to its first poll. 0: 10 s.
	InitTimeout time.Duration
	// Freeze stops the process between invocations (SIGSTOP). Lambda does so always; without it, background work of
	// the function goes on between invocations.
	Freeze bool
	// Stop says how the process is ended at a time-out and by Close.
	Stop Stop
	// OnLine is called with each line that the process prints, one call at a time; nil: nobody. See also WaitLine.
	OnLine func(line string)
}

func (o Options) check() error {
	var errs []error
	if info, err := os.Stat(o.Bootstrap); err != nil {
		errs = append(errs, fmt.Errorf("bootstrap: %w", err))
	} else if info.IsDir() || info.Mode()&0o111 == 0 {
		errs = append(errs, fmt.Errorf("bootstrap: %s is not an executable file", o.Bootstrap))
	}
	if o.Timeout < 0 || o.InitTimeout < 0 {
		errs = append(errs, fmt.Errorf("time-outs must not be negative: %v, %v", o.Timeout, o.InitTimeout))
	}
	if o.Stop < StopLikeLambda || o.Stop > StopKill {
		errs = append(errs, fmt.Errorf("unknown way to stop: %d", o.Stop))
	}
	for _, pair := range o.Env {
		if key, _, ok := strings.Cut(pair, "="); !ok || key == "" {
			errs = append(errs, fmt.Errorf("environment: %q is not of the form KEY=VALUE", pair))
		}
	}
	return errors.Join(errs...)
}

// Env is one execution environment. All methods are safe for concurrent use. Close it.
type Env struct {
	o    Options
	turn chan struct{} // held by the invocation that runs
	out  *output

	mu      sync.Mutex
	process *process // the newest; nil before the first invocation
	starts  int
	closed  bool
}

// New makes an environment without a process; the first invocation starts it.
func New(o Options) (*Env, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("make an execution environment: %w", err)
	}
	bootstrap, err := filepath.Abs(o.Bootstrap)
	if err != nil {
		return nil, fmt.Errorf("make an execution environment: %w", err)
	}
	o.Bootstrap = bootstrap
	if o.Timeout == 0 {
		o.Timeout = 3 * time.Second
	}
	if o.InitTimeout == 0 {
		o.InitTimeout = 10 * time.Second
	}
	return &Env{o: o, turn: make(chan struct{}, 1), out: newOutput(o.OnLine)}, nil
}

// Invocation is one event for the function.
type Invocation struct {
	// ID is the request id; empty: a new one. Lambda's retry of an asynchronous invocation has the id of the first try.
	ID      string
	Payload []byte
}

// Error types of results that the environment makes, not the function.
const (
	ErrorExit    = "Runtime.ExitError" // the process exited or was killed without an answer
	ErrorTimeout = "Sandbox.Timedout"  // the process was ended at Options.Timeout or Options.InitTimeout
)

// Result is the end of an invocation.
type Result struct {
	ID        string
	Body      []byte        // the function's answer; nil after an error
	ErrorType string        // empty: success; else the type that the function reported, ErrorExit or ErrorTimeout
	ErrorBody []byte        // JSON with errorMessage and errorType
	Cold      bool          // a process was started for this invocation
	Duration  time.Duration // without init, until the runtime polled again, exited or reached its limit
}

// Invoke runs the function once and blocks until its runtime polls for the next event, exits or is ended at the time-out. All of
// these give a Result. Invocations run one after another.
//
// ctx bounds the whole call. If it ends first, Invoke kills the process and returns the cause, so that no unwatched
// invocation goes on; for a caller that gives up on a function that keeps running, leave Invoke running in a goroutine.
func (e *Env) Invoke(ctx context.Context, in Invocation) (Result, error) {
	if in.ID == "" {
		in.ID = newID()
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return Result{}, fmt.Errorf("invoke %s: wait for the invocation before it: %w", in.ID, context.Cause(ctx))
	}
	p, cold, err := e.ready(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("invoke %s: %w", in.ID, err)
	}
	var res Result
	if cold {
		res, err = p.awaitInit(ctx, in.ID, e.o)
	}
	if err == nil && res.ErrorType == "" {
		res, err = p.run(ctx, in, e.o)
	}
	if err != nil {
		return Result{}, fmt.Errorf("invoke %s: %w", in.ID, err)
	}
	res.ID, res.Cold = in.ID, cold
	return res, nil
}

// ready gives the living process, thawed, or a new one.
func (e *Env) ready(ctx context.Context) (p *process, cold bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, false, ErrClosed
	}
	if e.process != nil {
		if e.process.resume() == nil {
			return e.process, false, nil
		}
		<-e.process.exited // it is dead, and its last output comes before that of the next
	}
	p, err = start(ctx, e.o, e.out)
	if err != nil {
		return nil, false, fmt.Errorf("start %s: %w", e.o.Bootstrap, err)
	}
	e.process = p
	e.starts++
	return p, true, nil
}

// alive gives the living process.
func (e *Env) alive() (*process, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.process == nil || e.process.gone() {
		return nil, ErrNoProcess
	}
	return e.process, nil
}

// Pid is the process id of the running process, or 0.
func (e *Env) Pid() int {
	p, err := e.alive()
	if err != nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Starts is the number of cold starts so far.
func (e *Env) Starts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.starts
}

// Pause stops the process where it is, also in the middle of an invocation, and returns when it stands still. Its
// deadline does not move: an invocation that is paused beyond Options.Timeout is ended.
func (e *Env) Pause() error {
	p, err := e.alive()
	if err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	return p.pause()
}

// Resume lets a paused process run on.
func (e *Env) Resume() error {
	p, err := e.alive()
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	return p.resume()
}

// Kill ends the process with SIGKILL, paused or not, and returns when it is gone. A running invocation ends with ErrorExit.
func (e *Env) Kill() error {
	p, err := e.alive()
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	p.end(false)
	return nil
}

// Term sends SIGTERM, and SIGKILL 500 ms later if the process still runs, and returns when it is gone. A paused process is
// resumed to see the signal.
func (e *Env) Term() error {
	p, err := e.alive()
	if err != nil {
		return fmt.Errorf("terminate: %w", err)
	}
	p.end(true)
	return nil
}

// WaitLine blocks until the processes of this environment have printed a line that contains substring, now or at any time
// before, and returns the first such line.
func (e *Env) WaitLine(ctx context.Context, substring string) (string, error) {
	return e.out.wait(ctx, 1, substring)
}

// WaitNth is WaitLine for the nth line (from 1) that contains substring.
func (e *Env) WaitNth(ctx context.Context, n int, substring string) (string, error) {
	return e.out.wait(ctx, n, substring)
}

// Lines are all lines that the processes of this environment have printed so far.
func (e *Env) Lines() []string { return e.out.all() }

// Close ends the process as Options.Stop says and returns when it is gone. A running invocation ends with ErrorExit, later
// ones with ErrClosed. Closing twice is allowed.
func (e *Env) Close() {
	e.mu.Lock()
	e.closed = true
	p := e.process
	e.mu.Unlock()
	if p != nil {
		p.end(p.wantsTerm(e.o.Stop))
	}
}

// newID makes a random UUID, the form of Lambda's request ids.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
