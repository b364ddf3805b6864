package leaseotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// Acquire is c.Acquire in a span that lasts as long as the wait: "lease acquire", with the lock's name and, once granted, the
// token and the holder; otherwise with the error and, if another holder is in the way, with who it is.
func (t *Telemetry) Acquire(ctx context.Context, c *lease.Client, name string) (*lease.Lease, error) {
	ctx, span := t.tracer.Start(ctx, "lease acquire", trace.WithAttributes(lockName.String(name)))
	defer span.End()
	l, err := c.Acquire(ctx, name)
	if err != nil {
		if held, ok := errors.AsType[*lease.HeldError](err); ok {
			span.SetAttributes(identity(held.Holder, held.Token)...)
		}
		fail(span, err)
		return nil, err
	}
	span.SetAttributes(identity(l.Holder(), l.Token())...)
	return l, nil
}

// Body is fn in a span: "lease hold", with the lock's name, the token and the holder. Failed renewals, jeopardy and the loss of the
// lease are events of the span if the lease's client has t as its observer. An error of fn, a panic and a lost lease make
// it an error. It fits Client.Do, singleton and election; an unguarded run of a singleton, without a lease, has a span as well.
func (t *Telemetry) Body(fn func(context.Context, *lease.Lease) error) func(context.Context, *lease.Lease) error {
	return func(ctx context.Context, l *lease.Lease) (err error) {
		ctx, span := t.tracer.Start(ctx, "lease hold")
		defer span.End()
		if l != nil {
			span.SetAttributes(append(identity(l.Holder(), l.Token()), lockName.String(l.Name()))...)
			defer t.follow(l, span)()
		}
		returned := false
		defer func() { // without recover: the panic keeps its stack
			if !returned {
				span.SetStatus(codes.Error, "the body panicked")
			}
		}()
		err = fn(ctx, l)
		returned = true
		switch {
		case err != nil:
			fail(span, err)
		case l != nil && errors.Is(l.Err(), lease.ErrLost):
			fail(span, l.Err())
		}
		return err
	}
}

// follow lets span have l's events until the returned function is called.
func (t *Telemetry) follow(l *lease.Lease, span trace.Span) (done func()) {
	key := hold{l.Holder(), l.Name(), l.Token()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans[key] = span
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.spans, key)
	}
}

// Stale counts a fenced write of the user's own by its error, and returns the error: nil as stored, lease.ErrStale as stale, all
// else as failed. A span in ctx gets an event if it was stale. name is the lock that the token came with.
func (t *Telemetry) Stale(ctx context.Context, name string, err error) error {
	how := "failed"
	switch {
	case err == nil:
		how = "stored"
	case errors.Is(err, lease.ErrStale):
		how = "stale"
		trace.SpanFromContext(ctx).AddEvent("stale write refused", trace.WithAttributes(lockName.String(name)))
	}
	t.inst.writes.Add(ctx, 1, t.with(name, err, outcome.String(how)))
	return err
}

// Guard is g with each Put and Get in a span ("fence put", "fence get") and each Put counted, stale ones apart. The metric has
// the lock's name (Options.Lock) where ctx carries a lease, as in Client.Do and the recipes.
func (t *Telemetry) Guard(g fence.Guard) fence.Guard { return guard{g, t} }

type guard struct {
	fence.Guard
	t *Telemetry
}

func (g guard) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	ctx, span := g.t.tracer.Start(ctx, "fence put", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(identity(holder, token)...))
	defer span.End()
	name := ""
	if l, ok := lease.FromContext(ctx); ok {
		name = l.Name()
		span.SetAttributes(lockName.String(name))
	}
	err := g.t.Stale(ctx, name, g.Guard.Put(ctx, key, value, token, holder))
	if err != nil {
		fail(span, err)
	}
	return err
}

func (g guard) Get(ctx context.Context, key string) (fence.Entry, error) {
	ctx, span := g.t.tracer.Start(ctx, "fence get", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	e, err := g.Guard.Get(ctx, key)
	if err != nil {
		fail(span, err)
	}
	return e, err
}

func identity(holder string, token lease.Token) []attribute.KeyValue {
	return []attribute.KeyValue{holderKey.String(holder), tokenKey.Int64(int64(token))} //nolint:gosec // at most 2^53-1
}

func fail(span trace.Span, err error) {
	span.SetAttributes(errorType.String(classOf(err)))
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}
