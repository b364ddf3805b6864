//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const (
	// turnTimeout is how long up and down wait for each other; the first start may build Consul.
	turnTimeout = 15 * time.Minute
	// endTimeout is how long down waits for a supervisor that was asked to end.
	endTimeout = 20 * time.Second
)

func names(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// up starts a supervisor unless there is one, and returns when everything works.
func up(ctx context.Context, s state, ports Ports, out io.Writer) error {
	unlock, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	pid, err := s.supervisor()
	if err != nil {
		return err
	}
	if pid != 0 {
		return s.tell(out, "runs already")
	}
	if err := errors.Join(s.clean(), busy(services(ports))); err != nil {
		return err
	}
	if err := s.spawn(ctx, ports); err != nil {
		return err
	}
	return s.tell(out, "runs")
}

func (s state) turn(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	return s.await(ctx, commandLock)
}

func (s state) tell(out io.Writer, how string) error {
	text, err := os.ReadFile(s.endpoints())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%sThe cloud's stand-in %s. This is %s; the logs are beside it.\n", text, how, s.endpoints())
	return err
}

// spawn starts the supervisor in a session of its own and waits for what it says: nothing but the end of the pipe if all is well.
func (s state) spawn(ctx context.Context, ports Ports) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(s.log("supervisor"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the supervisor writes it
	says, tells, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = says.Close() }() // a pipe that was read
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, append([]string{superviseCommand, "-dir", s.dir}, decimal(ports)...)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{tells}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = errors.Join(cmd.Start(), tells.Close())
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { // who gives up takes the supervisor along
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	})()
	trouble, err := io.ReadAll(says)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case string(trouble) != ready:
		return fmt.Errorf("start the cloud's stand-in: %s (see %s)", trouble, s.dir)
	}
	return cmd.Process.Release()
}

// ready is what a supervisor writes to the pipe when everything works.
const ready = "ready"

// supervise is the supervisor's life. It says in the pipe, which is file 3, how the start went.
func supervise(ctx context.Context, s state, ports Ports) error {
	syscall.CloseOnExec(3) // an engine that had the pipe too would keep it open
	pipe := os.NewFile(3, "pipe")
	unlock, err := s.lock(supervisorLock)
	if err != nil {
		return tellAndClose(pipe, err)
	}
	defer unlock()
	all := services(ports)
	engines, err := startAll(ctx, s, all)
	if err == nil {
		err = errors.Join(s.write(s.path("pid"), strconv.Itoa(os.Getpid())+"\n"), s.write(s.endpoints(), environment(all, engines.urls())))
	}
	if err != nil {
		return errors.Join(tellAndClose(pipe, err), engines.close(), s.clean())
	}
	_, err = pipe.WriteString(ready)
	if err := errors.Join(err, pipe.Close()); err != nil { // nobody waits any more
		return errors.Join(err, engines.close(), s.clean())
	}
	slog.Info("everything runs", slog.String("endpoints", s.endpoints()))
	err = nil
	if name, ended := engines.ends(ctx, all); ended {
		err = fmt.Errorf("%s has ended by itself, so everything ends; see %s", name, s.log(name))
	}
	_ = engines.close() // the one that has ended is in err already
	slog.Info("everything has ended")
	return errors.Join(err, s.clean())
}

func tellAndClose(pipe *os.File, err error) error {
	_, writeErr := pipe.WriteString(err.Error())
	return errors.Join(err, writeErr, pipe.Close())
}

// down ends the supervisor and waits until it is gone, and with it everything.
func down(ctx context.Context, s state, out io.Writer) error {
	unlock, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	pid, err := s.supervisor()
	if err != nil {
		return err
	}
	how := "has ended"
	if pid == 0 {
		how = "does not run"
	} else if err := s.end(ctx, pid); err != nil {
		return err
	}
	if err := s.clean(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "The cloud's stand-in %s.\n", how)
	return err
}

func (s state) end(ctx context.Context, pid int) error {
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(pid, how); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end the supervisor, process %d: %w", pid, err)
		}
		waiting, cancel := context.WithTimeout(ctx, endTimeout)
		unlock, err := s.await(waiting, supervisorLock)
		cancel()
		if err == nil {
			unlock()
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("the supervisor, process %d, does not end", pid)
}
