//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// state is the directory that up, down and the supervisor share.
type state struct{ dir string }

func newState(dir string) (state, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return state{}, err
	}
	return state{dir}, os.MkdirAll(filepath.Join(dir, "logs"), 0o750)
}

func (s state) path(name string) string { return filepath.Join(s.dir, name) }
func (s state) endpoints() string       { return s.path("endpoints.env") }
func (s state) code() string            { return s.path("functions") }
func (s state) log(name string) string  { return filepath.Join(s.dir, "logs", name+".log") }

// errHeld says that another process has the lock.
var errHeld = errors.New("another process has it")

// lock takes the lock of that name, which ends with this process at the latest, or fails with errHeld.
func (s state) lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(s.path(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { _ = f.Close() }, nil
	}
	_ = f.Close()                   // nothing was written
	if err == syscall.EWOULDBLOCK { //nolint:errorlint // a plain number
		return nil, errHeld
	}
	return nil, fmt.Errorf("lock %s: %w", s.path(name), err)
}

// await is lock, but waits for it.
func (s state) await(ctx context.Context, name string) (unlock func(), err error) {
	for {
		unlock, err := s.lock(name)
		if !errors.Is(err, errHeld) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", s.path(name), context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// The two locks. Up and down take turns with commandLock; the supervisor has supervisorLock as long as it lives.
const (
	commandLock    = "command"
	supervisorLock = "lock"
)

// supervisor is the process that holds supervisorLock, or 0 if none does.
func (s state) supervisor() (pid int, err error) {
	unlock, err := s.lock(supervisorLock)
	if err == nil {
		unlock()
		return 0, nil
	}
	if !errors.Is(err, errHeld) {
		return 0, err
	}
	text, err := os.ReadFile(s.path("pid"))
	if err != nil {
		return 0, fmt.Errorf("a supervisor runs that has not said which process it is: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// clean removes what a supervisor leaves behind that was killed. The logs stay.
func (s state) clean() error {
	return errors.Join(remove(s.endpoints()), remove(s.path("pid")), os.RemoveAll(s.code()))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// write makes a file appear as a whole.
func (s state) write(path, text string) error {
	part := path + ".part"
	if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}
