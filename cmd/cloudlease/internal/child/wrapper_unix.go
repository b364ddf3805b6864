//go:build unix

package child

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Supervisor is the wrapper's handle of its supervisor process. Its methods are safe for concurrent use, but Start and Wait
// are called once.
type Supervisor struct {
	process *os.Process
	news    *json.Decoder
	up      io.Closer
	group   int
	over    chan struct{} // closed by Dismiss
	end     sync.Once
	jobs    sync.WaitGroup // job control

	mu     sync.Mutex
	orders *json.Encoder
	down   io.Closer
}

// Launch starts the supervisor process, which then waits for a command. It is begun before the lease is asked for, so that
// its start takes no time of the lease.
func Launch() (*Supervisor, error) {
	adopt()
	ordersR, ordersW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe to the supervisor: %w", err)
	}
	newsR, newsW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe from the supervisor: %w", err), ordersR.Close(), ordersW.Close())
	}
	args := []string{os.Args[0], Argument}
	for _, pipe := range []*os.File{ordersR, newsW} { // they keep their numbers: 3 and up may be the command's
		_, _ = unix.FcntlInt(pipe.Fd(), unix.F_SETFD, 0) // of an open descriptor it cannot fail
		args = append(args, strconv.Itoa(int(pipe.Fd())))
	}
	p, err := os.StartProcess(self(), args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	_, _ = ordersR.Close(), newsW.Close() // the supervisor has its own
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the supervisor: %w", err), ordersW.Close(), newsR.Close())
	}
	return &Supervisor{
		process: p, news: json.NewDecoder(newsR), up: newsR, over: make(chan struct{}), orders: json.NewEncoder(ordersW), down: ordersW,
	}, nil
}

// Start starts c, which may run for left unless Trust grants more. It blocks until c runs or could not be started, which is
// a *StartError.
func (s *Supervisor) Start(c Command, left time.Duration) error {
	job := isJob()
	s.control(job) // before the command can be stopped, and this process with it
	s.send(order{Start: &start{
		Path: c.Path, Args: c.Args, Env: c.Env, Grace: c.Grace, Trust: trust{left, time.Now()}, Job: job, Group: syscall.Getpgrp(),
	}})
	var n news
	if err := s.news.Decode(&n); err != nil {
		return fmt.Errorf("the supervisor process has ended before it could start %s: %w", c.Path, err)
	}
	if n.Fault != nil {
		errno := syscall.Errno(n.Fault.Errno)
		e := &StartError{Path: c.Path, Code: CodeNotExecutable, Err: errno}
		if errors.Is(errno, syscall.ENOENT) {
			e.Code = CodeNotFound
		}
		return e
	}
	s.group = n.Started
	return nil
}

// Trust grants the command another left from now on, instead of what it had.
func (s *Supervisor) Trust(left time.Duration) { s.send(order{Trust: &trust{left, time.Now()}}) }

// Signal sends sig to the command's group.
func (s *Supervisor) Signal(sig os.Signal) {
	if n, ok := sig.(syscall.Signal); ok {
		s.send(order{Signal: int(n)})
	}
}

// Kill ends the command and its descendants at once. It does not wait for their end.
func (s *Supervisor) Kill() {
	s.send(order{Kill: true})
	if s.group > 0 { // also if the supervisor should be stopped
		_ = syscall.Kill(-s.group, syscall.SIGKILL)
	}
	_ = s.process.Signal(syscall.SIGCONT) // it has to kill those that have left the group, and to tell the end
}

// send is in vain if the supervisor is gone; Wait finds that out.
func (s *Supervisor) send(o order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.orders.Encode(o)
}

// Wait blocks until the command and all its descendants are gone, and ends the supervisor. ended is called when the
// command's leader has ended and others have not yet.
func (s *Supervisor) Wait(ended func()) Result {
	r := Result{Code: codeKilled, Why: Orphaned}
	for {
		var n news
		if err := s.news.Decode(&n); err != nil {
			s.sweep()
			break
		}
		if n.Ended != nil {
			r.Code = n.Ended.Code
			ended()
		}
		if n.Gone != nil {
			r.Why = n.Gone.Why
			break
		}
	}
	s.Dismiss()
	return r
}

// Dismiss ends a supervisor that has nothing to supervise, and waits for its end. Further calls do nothing.
func (s *Supervisor) Dismiss() {
	s.end.Do(func() { close(s.over) })
	s.jobs.Wait()
	s.mu.Lock()
	_ = s.down.Close()
	s.mu.Unlock()
	_, _ = s.process.Wait()
	_ = s.up.Close()
}

// sweepPause is the pause between looks for processes that are being killed.
const sweepPause = 20 * time.Millisecond

// sweep kills what a supervisor that died has left.
func (s *Supervisor) sweep() {
	if s.group == 0 {
		return
	}
	for {
		left := syscall.Kill(-s.group, syscall.SIGKILL) == nil
		for _, pid := range strays(os.Getpid(), s.group) {
			if pgrp, err := syscall.Getpgid(pid); err == nil && pgrp != syscall.Getpgrp() { // not what an SDK has started
				_ = syscall.Kill(pid, syscall.SIGKILL)
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
				left = true
			}
		}
		_, _ = syscall.Wait4(-s.group, nil, syscall.WNOHANG, nil)
		if !left {
			return
		}
		time.Sleep(sweepPause)
	}
}
