package child

import (
	"os"
	"time"
)

// Supervisor has no use on this platform.
type Supervisor struct{}

// Launch fails with ErrUnsupported.
func Launch() (*Supervisor, error) { return nil, ErrUnsupported }

// Start fails with ErrUnsupported.
func (*Supervisor) Start(Command, time.Duration) error { return ErrUnsupported }

// Trust does nothing.
func (*Supervisor) Trust(time.Duration) {}

// Signal does nothing.
func (*Supervisor) Signal(os.Signal) {}

// Kill does nothing.
func (*Supervisor) Kill() {}

// Wait returns at once.
func (*Supervisor) Wait(func()) Result { return Result{} }

// Dismiss does nothing.
func (*Supervisor) Dismiss() {}

// Supervise fails.
func Supervise([]string) int { return 1 }

// Width is a usual one.
func Width(int) int { return 80 }

// IsTerminal is false: nothing here needs to know.
func IsTerminal(int) bool { return false }
