//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
	"github.com/cloudlease/cloudlease/e2e/torture/worker"
)

// holder is a worker: one process after another, behind one proxy.
type holder struct {
	config worker.Config
	proxy  *proxy.Proxy
	dir    string
	log    *history.Writer

	lives int

	mu   sync.Mutex
	life *life // the present or the last one
}

// life is one process.
type life struct {
	cmd      *exec.Cmd
	commands io.WriteCloser
	answers  *bufio.Reader
	errors   string // the file of its standard error
	exited   chan struct{}
	exit     error // valid once exited is closed
	expected bool  // somebody has asked it to end; guarded by holder.mu
}

// historyFile is what all lives of the worker append to.
func (h *holder) historyFile() string { return filepath.Join(h.dir, h.config.Name+".jsonl") }

// start begins the next life.
func (h *holder) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	h.lives++
	c := h.config
	c.Life, c.History = h.lives, h.historyFile()
	l := &life{errors: filepath.Join(h.dir, fmt.Sprintf("%s.%d.stderr", c.Name, c.Life)), exited: make(chan struct{})}
	stderr, err := os.Create(l.errors)
	if err != nil {
		return err
	}
	l.cmd = exec.Command(program, append([]string{workerCommand}, c.Args()...)...) //nolint:noctx // its end is part of the campaign
	l.cmd.Stderr = stderr
	dieWithParent(l.cmd)
	started := make(chan error)
	go h.stay(l, stderr, started)
	if err := <-started; err != nil {
		return fmt.Errorf("start worker %s: %w", c.Name, err)
	}
	h.mu.Lock()
	h.life = l
	h.mu.Unlock()
	return nil
}

// stay starts the process and waits for its end on one thread: the kernel ends a child with the thread that started it.
func (h *holder) stay(l *life, stderr io.Closer, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := l.begin()
	started <- err
	if err != nil {
		_ = stderr.Close()
		return
	}
	_, waitErr := l.cmd.Process.Wait() // not cmd.Wait, which would close the pipe of answers under the reader
	_ = stderr.Close()
	h.mu.Lock()
	expected := l.expected
	h.mu.Unlock()
	l.exit = waitErr
	if !expected {
		said, _ := os.ReadFile(l.errors)
		h.log.Add(history.Event{Kind: history.Finding, Worker: h.config.Name, Err: fmt.Sprintf("it ended by itself: %.2000s", said)})
	}
	close(l.exited)
}

func (l *life) begin() error {
	stdin, err := l.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := l.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	l.commands, l.answers = stdin, bufio.NewReader(stdout)
	return l.cmd.Start()
}

// command tells the process something and waits until it has heard.
func (h *holder) command(text string) error {
	l := h.current()
	if _, err := fmt.Fprintln(l.commands, text); err != nil {
		return fmt.Errorf("tell %s %q: %w", h.config.Name, text, err)
	}
	if _, err := l.answers.ReadString('\n'); err != nil {
		return fmt.Errorf("tell %s %q: %w", h.config.Name, text, err)
	}
	return nil
}

func (h *holder) current() *life {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life
}

func (h *holder) signal(s syscall.Signal) error {
	if err := h.current().cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, h.config.Name, err)
	}
	return nil
}

// expectEnd says that the end of the present process is no fault of its own.
func (h *holder) expectEnd() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life.expected = true
}

// end sends s and waits until the process is gone.
func (h *holder) end(s syscall.Signal, patience time.Duration) error {
	h.expectEnd()
	err := h.signal(s)
	if err == nil {
		err = h.gone(patience)
	}
	return errors.Join(err, h.tidy())
}

var errStuck = errors.New("it does not end")

// gone waits until the process is gone.
func (h *holder) gone(patience time.Duration) error {
	select {
	case <-h.current().exited:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("worker %s: %w within %v", h.config.Name, errStuck, patience)
	}
}

// tidy kills what is left of the process and closes its pipe.
func (h *holder) tidy() error {
	l := h.current()
	select {
	case <-l.exited:
	default:
		h.expectEnd()
		_ = l.cmd.Process.Kill()
		<-l.exited
	}
	if err := l.commands.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// finish asks the process to take every lock once more and to end, and waits until it has.
func (h *holder) finish(ctx context.Context, patience time.Duration) error {
	h.expectEnd()
	err := h.command(worker.Finish)
	if err == nil {
		select {
		case <-h.current().exited:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(patience):
			err = fmt.Errorf("worker %s: %w within %v after the last fault", h.config.Name, errStuck, patience)
			_ = h.signal(syscall.SIGQUIT) // it then says where it hangs
			_ = h.gone(5 * time.Second)
		}
	}
	return errors.Join(err, h.tidy())
}
