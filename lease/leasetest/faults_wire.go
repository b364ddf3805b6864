package leasetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Intercept lets do happen through the faults. It has the signature of memlease.Options.Intercept.
func (f *Faults) Intercept(ctx context.Context, op string, do func() error) error {
	if f.number > 0 {
		time.Sleep(time.Duration(f.number) * 10 * time.Microsecond)
	}
	_, err := send(ctx, f, op, message[struct{}]{
		deliver: func(context.Context) (struct{}, error) { return struct{}{}, do() },
		refuse:  func(x Failure) (struct{}, error) { return struct{}{}, failure(op, x) },
		discard: func(struct{}) {},
	})
	return err
}

// failure is how a store reports x: what was certainly not done, and what may have been.
func failure(op string, x Failure) error {
	switch x {
	case Throttled:
		return &lease.Error{Op: op, Class: lease.ErrUnavailable, Err: errors.New(string(x))}
	case Denied:
		return &lease.Error{Op: op, Class: lease.ErrDenied, Err: errors.New(string(x))}
	case Unavailable, Internal: // may come after the effect
	}
	return errors.New(string(x))
}

// RoundTripper is next behind the faults. The operation is learned from the request's context, where Annotate puts it.
// fail makes the answer that the service gives for a Failure.
func (f *Faults) RoundTripper(next http.RoundTripper, fail func(*http.Request, Failure) *http.Response) http.RoundTripper {
	return &roundTripper{f: f, next: next, fail: fail}
}

type roundTripper struct {
	f    *Faults
	next http.RoundTripper
	fail func(*http.Request, Failure) *http.Response
}

func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil { // its owner may reuse it when RoundTrip returns, which can be before the request arrives
		var err error
		body, err = io.ReadAll(req.Body)
		if err = errors.Join(err, req.Body.Close()); err != nil {
			return nil, fmt.Errorf("read the body of a request: %w", err)
		}
	}
	if t.f.number > 0 {
		turn := inTurn(req, body) + time.Duration(t.f.number)*10*time.Microsecond
		time.Sleep(turn)
		defer time.Sleep(turn)
	}
	copyFor := func(ctx context.Context) *http.Request {
		out := req.Clone(ctx)
		if req.Body != nil {
			out.Body = io.NopCloser(bytes.NewReader(body))
		}
		return out
	}
	return send(req.Context(), t.f, annotationOf(req.Context()).op, message[*http.Response]{
		deliver: func(ctx context.Context) (*http.Response, error) { return t.next.RoundTrip(copyFor(ctx)) },
		refuse: func(x Failure) (*http.Response, error) {
			if r := t.fail(copyFor(req.Context()), x); r != nil {
				return r, nil
			}
			return nil, fmt.Errorf("leasetest: the harness makes no answer for %q", x)
		},
		discard: func(r *http.Response) { _ = r.Body.Close() },
	})
}

// inTurn is a moment, at most 10 µs, that depends on the request alone, and not on the order of what its body holds. Of requests
// that are sent or answered at one instant the scheduler would decide which comes first, and a simulation could not be repeated.
func inTurn(req *http.Request, body []byte) time.Duration {
	sum := uint64(len(body))
	for _, c := range append([]byte(req.Method+req.URL.String()), body...) {
		sum += uint64(c) * uint64(c)
	}
	return time.Duration(1 + sum%9973) //nolint:gosec // a small number
}
