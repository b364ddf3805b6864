// Package storeerr has the errors that every store needs below lease.Error.
package storeerr

import (
	"context"

	"github.com/cloudlease/cloudlease/lease"
)

// UnsentError is a context that had ended before a request was made of it: nothing can have been done.
type UnsentError struct{ Cause error }

func (e *UnsentError) Error() string { return "not sent: " + e.Cause.Error() }

// Unwrap gives the cause.
func (e *UnsentError) Unwrap() error { return e.Cause }

// Sendable is nil while a request may still be sent.
func Sendable(ctx context.Context) error {
	if ctx.Err() != nil {
		return &UnsentError{lease.Cause(ctx)}
	}
	return nil
}

// ToldError keeps an error reachable without repeating its text, which may hold a secret.
type ToldError struct {
	Text string
	Err  error
}

func (e *ToldError) Error() string { return e.Text }

// Unwrap gives the error itself.
func (e *ToldError) Unwrap() error { return e.Err }
