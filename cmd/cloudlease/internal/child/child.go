package child

import (
	"errors"
	"fmt"
	"time"
)

// Command is what to run.
type Command struct {
	Path  string   // of the file
	Args  []string // including the name by which it is called
	Env   []string
	Grace time.Duration // between SIGTERM and SIGKILL
}

// Why says why a command was made to end.
type Why string

// The reasons.
const (
	ByItself  Why = ""          // it was not made to
	TimeIsUp  Why = "time"      // its time was nearly over and no more was granted
	Told      Why = "signal"    // the wrapper was sent SIGTERM
	Ordered   Why = "order"     // Kill was called
	WrapperUp Why = "wrapper"   // the wrapper was gone
	Orphaned  Why = "abandoned" // the supervisor was gone
)

// Result is how a command ended.
type Result struct {
	Code int // as a shell tells it: the status, or 128 and the number of the signal
	Why  Why
}

// The codes by which a shell tells that a command was not started.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
	codeSignal        = 128
	codeKilled        = codeSignal + 9
)

// StartError says why a command could not be started.
type StartError struct {
	Path string
	Code int // CodeNotExecutable or CodeNotFound
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("start %s: %v", e.Path, e.Err) }

// Unwrap gives the cause.
func (e *StartError) Unwrap() error { return e.Err }

// ErrUnsupported tells that this platform has no process groups as this package needs them.
var ErrUnsupported = errors.New("running a command under a lease is not supported on this platform; it is on Linux, macOS and the BSDs")
