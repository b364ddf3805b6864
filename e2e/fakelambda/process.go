//go:build unix

package fakelambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// process is one bootstrap process and the runtime API that belongs to it alone: a dead process's open poll can never take an
// event that is meant for the next one.
type process struct {
	cmd        *exec.Cmd
	api        *http.Server
	registered atomic.Bool           // an extension asked to be told of the shutdown
	polled     chan struct{}         // the runtime asked for the next event
	events     chan *event           // handed to the poll
	current    atomic.Pointer[event] // whose answer is accepted
	exited     chan struct{}
	exit       error      // of Wait; valid once exited is closed
	stopping   sync.Mutex // SIGSTOP and SIGCONT, so that no stop is awaited that was taken back
}

// start runs the bootstrap. ctx bounds only the start.
func start(ctx context.Context, o Options, out *output) (*process, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &process{
		polled: make(chan struct{}, 1),
		events: make(chan *event),
		exited: make(chan struct{}),
	}
	p.api = &http.Server{Handler: p.routes(), ReadHeaderTimeout: time.Minute}
	p.cmd = &exec.Cmd{
		Path:        o.Bootstrap,
		Args:        []string{o.Bootstrap},
		Dir:         filepath.Dir(o.Bootstrap),
		Env:         environ(o, listener.Addr().String()),
		Stdout:      out,
		Stderr:      out, // the same writer: one pipe keeps the order of lines
		SysProcAttr: attributes(),
		WaitDelay:   time.Second, // a grandchild may hold the pipe
	}
	started := make(chan error)
	go p.live(listener, out, started)
	if err := <-started; err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return p, nil
}

// live starts the process and stays with it until it is gone. The kernel ends a child when the *thread* that started it ends,
// so that thread is kept.
func (p *process) live(listener net.Listener, out *output, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = p.api.Serve(listener) }) // returns when the server is closed
	p.exit = p.cmd.Wait()
	_ = p.signal(syscall.SIGKILL) // grandchildren; the group's id is not reused while one is left
	out.flush()
	_ = p.api.Close()
	serving.Wait()
	close(p.exited)
}

// environ is everything the process gets to know. HOME is missing as on Lambda, and the AWS files are named explicitly
// because the SDK otherwise finds the developer's by way of the user database.
func environ(o Options, api string) []string {
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/opt/bin",
		"LANG=en_US.UTF-8",
		"TZ=:UTC",
		"AWS_CONFIG_FILE=/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		"AWS_EC2_METADATA_DISABLED=true",
		"AWS_REGION=" + region,
		"AWS_DEFAULT_REGION=" + region,
		"AWS_LAMBDA_FUNCTION_NAME=" + functionName,
		"AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=128",
		"AWS_LAMBDA_INITIALIZATION_TYPE=on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME=/aws/lambda/" + functionName,
		"AWS_LAMBDA_LOG_STREAM_NAME=2026/01/01/[$LATEST]00000000000000000000000000000000",
		"LAMBDA_TASK_ROOT=" + filepath.Dir(o.Bootstrap),
		"_HANDLER=" + filepath.Base(o.Bootstrap),
	}
	env = append(env, o.Env...) // of equal keys the last one counts
	return append(env, "AWS_LAMBDA_RUNTIME_API="+api)
}

func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// signal reaches the process and its children.
func (p *process) signal(s syscall.Signal) error {
	if p.gone() {
		return ErrNoProcess
	}
	err := syscall.Kill(-p.cmd.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return ErrNoProcess
	}
	return err
}

func (p *process) pause() error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	awaitStop(p.cmd.Process.Pid)
	return nil
}

func (p *process) resume() error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	if err := p.signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	return nil
}

// wantsTerm tells whether the process gets a SIGTERM before it is killed.
func (p *process) wantsTerm(s Stop) bool {
	return s == StopTerm || s == StopLikeLambda && p.registered.Load()
}

// end ends the process and returns when it is gone.
func (p *process) end(term bool) {
	if term && p.signal(syscall.SIGTERM) == nil {
		_ = p.resume() // a stopped process sees the signal only when it runs; if it is gone, all is well
		select {
		case <-p.exited:
			return
		case <-time.After(grace):
		}
	}
	_ = p.signal(syscall.SIGKILL)
	<-p.exited
}

// awaitInit waits for the first poll. A Result with an ErrorType means that it did not come.
func (p *process) awaitInit(ctx context.Context, id string, o Options) (Result, error) {
	limit := time.NewTimer(o.InitTimeout)
	defer limit.Stop()
	select {
	case <-p.polled:
		return Result{}, nil
	case <-p.exited:
		return p.exitResult(id), nil
	case <-limit.C:
		p.end(p.wantsTerm(o.Stop))
		return failure(id, ErrorTimeout, fmt.Sprintf("Init timed out after %.2f seconds", o.InitTimeout.Seconds())), nil
	case <-ctx.Done():
		p.end(false)
		return Result{}, fmt.Errorf("init: %w", context.Cause(ctx))
	}
}

// run hands the event over and waits for the end of the invocation, which is the next poll and not the answer.
func (p *process) run(ctx context.Context, in Invocation, o Options) (Result, error) {
	begin := time.Now()
	ev := &event{Invocation: in, deadline: begin.Add(o.Timeout), answer: make(chan Result, 1)}
	p.current.Store(ev)
	defer p.current.Store(nil)
	limit := time.NewTimer(o.Timeout)
	defer limit.Stop()

	handOver := p.events
	for {
		var res Result
		select {
		case handOver <- ev:
			handOver = nil
			continue
		case <-p.polled:
			answer, ok := ev.answered()
			if !ok {
				continue // polled twice
			}
			res = answer
			if o.Freeze {
				if err := p.pause(); err != nil && !errors.Is(err, ErrNoProcess) {
					return Result{}, fmt.Errorf("freeze: %w", err)
				}
			}
		case <-p.exited:
			answer, ok := ev.answered() // after a panic the error is posted, then the runtime exits
			if !ok {
				answer = p.exitResult(in.ID)
			}
			res = answer
		case <-limit.C:
			res.Duration = time.Since(begin)
			answer, ok := ev.answered() // the caller has it, though the runtime did not come back
			p.end(p.wantsTerm(o.Stop))
			if !ok {
				answer = failure(in.ID, ErrorTimeout, fmt.Sprintf("Task timed out after %.2f seconds", o.Timeout.Seconds()))
			}
			answer.Duration = res.Duration
			return answer, nil
		case <-ctx.Done():
			p.end(false)
			return Result{}, context.Cause(ctx)
		}
		res.Duration = time.Since(begin)
		return res, nil
	}
}

func (p *process) exitResult(id string) Result {
	if p.exit == nil {
		return failure(id, ErrorExit, "Runtime exited without providing a reason")
	}
	return failure(id, ErrorExit, fmt.Sprintf("Runtime exited with error: %v", p.exit))
}

// failure is a Result in the words of Lambda.
func failure(id, kind, message string) Result {
	body, err := json.Marshal(map[string]string{"errorType": kind, "errorMessage": "RequestId: " + id + " Error: " + message})
	if err != nil {
		body = nil // two strings cannot fail
	}
	return Result{ErrorType: kind, ErrorBody: body}
}
