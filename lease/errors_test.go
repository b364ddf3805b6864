package lease_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func TestErrorText(t *testing.T) {
	for want, err := range map[string]error{
		`renew "x" on memory: lease lost`: &lease.Error{Op: "renew", Store: "memory", Name: "x", Class: lease.ErrLost},
		`close: client closed`:            &lease.Error{Op: "close", Class: lease.ErrClosed},
		`save "a b" on memory: outcome unknown: EOF; try again`: &lease.Error{
			Op: "save", Store: "memory", Name: "a b", Class: lease.ErrInDoubt, Err: io.EOF, Hint: "try again",
		},
		`save on memory: invalid argument: too long`: &lease.Error{
			Op: "save", Store: "memory", Class: lease.ErrInvalid, Err: fmt.Errorf("%w: too long", lease.ErrInvalid),
		},
		`put "k": invalid argument: token 0 is none`: lease.Invalid("put", "k", "token %d is none", 0),
		`"x" is held`:                                    &lease.HeldError{Name: "x"},
		`"x" is held by h with token 7`:                  &lease.HeldError{Name: "x", Holder: "h", Token: 7},
		`"x" is held, for another 1.235s if not renewed`: &lease.HeldError{Name: "x", RetryAfter: 1234567 * time.Microsecond},
		`"x": occurrence 2026-03-01T00:00:00Z has passed: newest started 2026-03-02T00:00:00Z, newest finished none`: &lease.PassedError{
			Name: "x", Occurrence: 1772323200, Marks: lease.Marks{Started: 1772409600},
		},
	} {
		require.EqualError(t, err, want)
	}
}

func TestErrorsMatchTheirClassAlone(t *testing.T) {
	for _, class := range classes {
		requireClass(t, class, &lease.Error{Op: "op", Class: class, Err: io.EOF})
		requireClass(t, class, fmt.Errorf("wrapped: %w", &lease.Error{Op: "op", Class: class}))
	}
	requireClass(t, lease.ErrHeld, &lease.HeldError{})
	requireClass(t, lease.ErrPassed, &lease.PassedError{})
	requireClass(t, lease.ErrInvalid, lease.Invalid("op", "x", "why"))
}

// serviceError is an error of a service's library.
type serviceError struct{ Code string }

func (e *serviceError) Error() string { return e.Code }

func TestTheServicesOwnErrorStaysReachable(t *testing.T) {
	err := fmt.Errorf("my program: %w", &lease.Error{Op: "renew", Class: lease.ErrDenied, Err: &serviceError{"AccessDenied"}})
	own, ok := errors.AsType[*serviceError](err)
	require.True(t, ok)
	require.Equal(t, "AccessDenied", own.Code)
	typed, ok := errors.AsType[*lease.Error](err)
	require.True(t, ok)
	require.Equal(t, "renew", typed.Op)
}

func TestMarksRefuse(t *testing.T) {
	var none *lease.Mark
	require.False(t, none.Refuses(lease.Marks{Started: 9, Finished: 9}))
	for _, c := range []struct {
		have                    lease.Marks
		atLeastOnce, atMostOnce bool // occurrence 5 is refused
	}{
		{lease.Marks{}, false, false},
		{lease.Marks{Started: 4, Finished: 4}, false, false},
		{lease.Marks{Started: 5, Finished: 4}, false, true},
		{lease.Marks{Started: 6, Finished: 4}, false, true},
		{lease.Marks{Started: 5, Finished: 5}, true, true},
		{lease.Marks{Started: 6, Finished: 6}, true, true},
		{lease.Marks{Finished: 5}, true, true},
	} {
		require.Equal(t, c.atLeastOnce, (&lease.Mark{Occurrence: 5}).Refuses(c.have), "%+v", c.have)
		require.Equal(t, c.atMostOnce, (&lease.Mark{Occurrence: 5, AtMostOnce: true}).Refuses(c.have), "%+v", c.have)
	}
}
