package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/internal/excerpt"
)

// The classes of errors. Every error of this module matches exactly one of them with errors.Is.
var (
	// ErrHeld: another holder has the lock. See HeldError.
	ErrHeld = errors.New("held by another")
	// ErrPassed: the lock's marks have passed the occurrence. See PassedError.
	ErrPassed = errors.New("occurrence passed")
	// ErrLost: the lease is over and its holder must stop. It never becomes valid again.
	ErrLost = errors.New("lease lost")
	// ErrReleased: the lease was released by its holder.
	ErrReleased = errors.New("lease released")
	// ErrStale: a fence refused a write whose token is older than one it has seen.
	ErrStale = errors.New("stale token refused")
	// ErrConflict: a record changed since it was read.
	ErrConflict = errors.New("record changed")
	// ErrInvalid: a bad argument; nothing was sent.
	ErrInvalid = errors.New("invalid argument")
	// ErrDenied: the service refused the credentials or the action.
	ErrDenied = errors.New("access denied")
	// ErrMisconfigured: a table, container or key is missing or not what it should be; retrying does not help.
	ErrMisconfigured = errors.New("misconfigured")
	// ErrUnavailable: the service could not be asked or did not do it; retrying may help.
	ErrUnavailable = errors.New("store unavailable")
	// ErrInDoubt: the request may or may not have been done.
	ErrInDoubt = errors.New("outcome unknown")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client closed")
)

// Error says what failed, on what, and what to do next. It wraps its class and the service's own error.
type Error struct {
	Op    string // acquire, renew, release, save, inspect, ...
	Store string // Limits.Store
	Name  string // the lock, empty where none is concerned
	Class error  // one of the classes above
	Hint  string // what to do next, may be empty
	Err   error  // the cause, may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Name != "" {
		fmt.Fprintf(&b, " %q", e.Name)
	}
	if e.Store != "" {
		b.WriteString(" on " + e.Store)
	}
	if e.Err == nil || !errors.Is(e.Err, e.Class) { // once is enough
		b.WriteString(": " + e.Class.Error())
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Unwrap gives the class and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Err}
}

// HeldError says who holds the lock, as far as the service tells. It matches ErrHeld.
type HeldError struct {
	Name       string
	Holder     string        // empty where the service does not say
	Token      Token         // 0 where the service does not say
	RetryAfter time.Duration // when the lease can end at the earliest, if it is not renewed; 0: unknown
	Marks      Marks
}

func (e *HeldError) Error() string {
	s := fmt.Sprintf("%q is held", e.Name)
	if e.Holder != "" {
		s += " by " + excerpt.Of(e.Holder, MaxName)
	}
	if e.Token != 0 {
		s += fmt.Sprintf(" with token %d", e.Token)
	}
	if e.RetryAfter > 0 {
		s += fmt.Sprintf(", for another %v if not renewed", e.RetryAfter.Round(time.Millisecond))
	}
	return s
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// PassedError says that the marks kept with a lock have passed the occurrence that was asked for. It matches ErrPassed.
type PassedError struct {
	Name       string
	Occurrence int64
	Marks      Marks
	Token      Token // of the last grant
	Value      []byte
}

func (e *PassedError) Error() string {
	return fmt.Sprintf("%q: occurrence %s has passed: newest started %s, newest finished %s", e.Name,
		instant(e.Occurrence), instant(e.Marks.Started), instant(e.Marks.Finished))
}

// Is makes errors.Is(err, ErrPassed) true.
func (e *PassedError) Is(target error) bool { return target == ErrPassed }

func instant(unix int64) string {
	if unix == 0 {
		return "none"
	}
	return time.Unix(unix, 0).UTC().Format(time.RFC3339)
}

// Invalid is an *Error of class ErrInvalid. Recipes and stores use it so that bad arguments look alike everywhere.
func Invalid(op, name, format string, args ...any) error {
	return &Error{Op: op, Name: name, Class: ErrInvalid, Err: fmt.Errorf(format, args...)}
}

// Cause is context.Cause(ctx) for wrapping in an Error: if the cause is itself an error of this module, such as the loss of
// another lease whose context ctx is derived from, its text is kept and its class is not, because an error has one class.
// Stores and recipes use it. It is nil while ctx has not ended.
func Cause(ctx context.Context) error {
	cause := context.Cause(ctx)
	for _, class := range classes {
		if errors.Is(cause, class) {
			return fmt.Errorf("%w: %s", ctx.Err(), cause.Error())
		}
	}
	return cause
}

var classes = []error{
	ErrHeld, ErrPassed, ErrLost, ErrReleased, ErrStale, ErrConflict, ErrInvalid, ErrDenied, ErrMisconfigured, ErrUnavailable,
	ErrInDoubt, ErrClosed,
}

// transient tells whether trying again may help.
func transient(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrInDoubt)
}
