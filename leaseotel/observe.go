package leaseotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/cloudlease/cloudlease/lease"
)

// Observe implements lease.Observer. Kinds of events that are not of package lease are passed on and not measured.
func (t *Telemetry) Observe(e lease.Event) {
	ctx := context.Background() // events come from the background
	switch e.Kind {
	case lease.Acquired:
		t.inst.attempts.Add(ctx, 1, t.with(e.Name, nil, outcome.String("granted")))
		t.inst.wait.Record(ctx, e.Took.Seconds(), t.with(e.Name, nil))
		t.inst.tries.Record(ctx, int64(e.Tries), t.with(e.Name, nil))
		t.inst.active.Add(ctx, 1, t.with(e.Name, nil))
	case lease.Contended:
		t.inst.attempts.Add(ctx, 1, t.with(e.Name, nil, outcome.String("held")))
	case lease.StoreFailed:
		t.inst.attempts.Add(ctx, 1, t.with(e.Name, e.Err, outcome.String("failed")))
		t.failed(ctx, e, "acquire")
	case lease.Renewed:
		t.inst.renewal.Record(ctx, e.Took.Seconds(), t.with(e.Name, nil))
	case lease.RenewFailed:
		t.inst.renewal.Record(ctx, e.Took.Seconds(), t.with(e.Name, e.Err))
		t.failed(ctx, e, "renew")
	case lease.Jeopardy:
		t.inst.jeopardies.Add(ctx, 1, t.with(e.Name, nil))
	case lease.Lost:
		t.inst.losses.Add(ctx, 1, t.with(e.Name, nil, lossKind.String(string(e.Loss))))
		t.ended(ctx, e, "lost")
	case lease.Released:
		t.ended(ctx, e, "released")
	case lease.ReleaseFailed:
		t.ended(ctx, e, "release_failed")
		t.failed(ctx, e, "release")
	case lease.Abandoned:
		if e.Err != nil {
			t.failed(ctx, e, "give_back")
		}
	case lease.Namesake:
		t.inst.namesakes.Add(ctx, 1, t.with(e.Name, nil))
	}
	t.trace(e)
	if t.opt.Next != nil {
		t.opt.Next.Observe(e)
	}
}

func (t *Telemetry) failed(ctx context.Context, e lease.Event, op string) {
	t.inst.failures.Add(ctx, 1, t.with(e.Name, e.Err, operation.String(op)))
}

func (t *Telemetry) ended(ctx context.Context, e lease.Event, how string) {
	t.inst.hold.Record(ctx, e.Took.Seconds(), t.with(e.Name, nil, endKey.String(how)))
	t.inst.active.Add(ctx, -1, t.with(e.Name, nil))
}

// trace adds what happens to a lease to the span of the body that runs under it.
func (t *Telemetry) trace(e lease.Event) {
	switch e.Kind {
	case lease.RenewFailed, lease.Jeopardy, lease.Lost:
	default:
		return
	}
	t.mu.Lock()
	span := t.spans[hold{e.Holder, e.Name, e.Token}]
	t.mu.Unlock()
	if span == nil {
		return
	}
	var kv []attribute.KeyValue
	if e.Err != nil {
		kv = append(kv, errorType.String(classOf(e.Err)))
	}
	if e.Loss != "" {
		kv = append(kv, lossKind.String(string(e.Loss)))
	}
	span.AddEvent(string(e.Kind), trace.WithAttributes(kv...))
}
