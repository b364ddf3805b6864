package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cloudlease/cloudlease/lease"
)

// The exit codes. Those of their own are outside of what a shell uses for signals (126 to 165), of sysexits (64 to 78) and of
// what systemd gives names to (200 to 245), so that they are not taken for a command's.
const (
	codeDone  = 0
	codeNo    = 1   // nothing was changed, because it is not as it was said to be; or doctor has found a fault
	codeHeld  = 191 // the lock was not obtained
	codeStore = 192 // the store could not be asked, or refused
	codeLost  = 193 // the lease was lost, or the command was ended because it would have been
	codeUsage = 194
	codeDoubt = 195 // the occurrence is not run: it is in doubt, or has failed before
	codeFirst = 128 // and a signal
)

const codesHelp = `  0     done; for run, what the command itself returned
  1     nothing was changed, because the lock is not as you said; or doctor found a fault
  126   run: the command is not executable          127   run: there is no such command
  128+n run: the command, or the wait for the lock, was ended by signal n
  191   held: the lock was not obtained
  192   store: the store could not be asked, or refused
  193   lost: the lease was lost, and the command was ended before another could begin
  194   wrong usage; nothing was done
  195   doubt: the occurrence is not run, because it is in doubt or has failed before

run returns other codes of its own where you say so:
--exit-code held=75,lost=76,store=77,doubt=78,release=79. release is the code for a command
that returned 0 and a lock that could not be given back; without it the code is 0, with a
warning on stderr.`

// exitError is an error with the exit code that it ends the program with. A nil err has been told already.
type exitError struct {
	code   int
	err    error
	advice string // lines that follow the error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// failed gives err the exit code of its class.
func failed(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e
	}
	return &exitError{code: codeOf(err), err: err}
}

func codeOf(err error) int {
	switch {
	case errors.Is(err, lease.ErrInvalid):
		return codeUsage
	case errors.Is(err, lease.ErrConflict):
		return codeNo
	case errors.Is(err, lease.ErrHeld):
		return codeHeld
	case errors.Is(err, lease.ErrLost):
		return codeLost
	}
	return codeStore
}

func usage(format string, args ...any) error {
	return &exitError{code: codeUsage, err: fmt.Errorf(format, args...)}
}

// codes are run's exit codes that can be chosen.
type codes map[string]int

func defaultCodes() codes {
	return codes{"held": codeHeld, "store": codeStore, "lost": codeLost, "doubt": codeDoubt, "release": codeDone}
}

// parseCodes reads --exit-code.
func parseCodes(text []string) (codes, error) {
	c := defaultCodes()
	for _, pair := range text {
		name, value, ok := strings.Cut(pair, "=")
		n, err := strconv.Atoi(value)
		if _, known := c[name]; !ok || !known || err != nil || n < 0 || n > 255 {
			return nil, usage("--exit-code %q is not held, store, lost, doubt or release, an equals sign, and a number from 0 to 255", pair)
		}
		c[name] = n
	}
	return c, nil
}

// of is the code that ends a run that failed with err.
func (c codes) of(err error) int {
	switch code := codeOf(err); code {
	case codeHeld:
		return c["held"]
	case codeStore, codeNo:
		return c["store"]
	case codeLost:
		return c["lost"]
	default:
		return code
	}
}
