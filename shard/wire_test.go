package shard_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// wire is a store with the network in front of it.
type wire struct {
	lease.Store

	mu    sync.Mutex
	dead  bool
	calls []call
	hook  hook

	cutAfter, cuts int // see cutScans
}

// hook stands between a store and its service. do sends the request.
type hook func(ctx context.Context, op, key string, do func(context.Context) error) error

type call struct {
	op, key string
	at      time.Time
}

func newWire(s lease.Store) *wire { return &wire{Store: s} }

func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
}

// intercept lets f stand between the host and the service; nil ends that.
func (w *wire) intercept(f hook) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook = f
}

// take returns the calls since the last take and forgets them.
func (w *wire) take() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.calls
	w.calls = nil
	return out
}

func (w *wire) pass(ctx context.Context, op, key string, do func(context.Context) error) error {
	w.mu.Lock()
	dead, hook := w.dead, w.hook
	if !dead {
		w.calls = append(w.calls, call{op: op, key: key, at: time.Now()})
	}
	w.mu.Unlock()
	switch {
	case dead:
		return unavailable(op)
	case hook != nil:
		return hook(ctx, op, key, do)
	}
	return do(ctx)
}

func unavailable(op string) error {
	return &lease.Error{Op: op, Class: lease.ErrUnavailable, Err: errors.New("no route")}
}

func unanswered(op string) error {
	return &lease.Error{Op: op, Class: lease.ErrInDoubt, Err: errors.New("the connection was cut")}
}

// answered is pass for a call with a value. A hook may let the call happen after its caller has gone.
func answered[T any](ctx context.Context, w *wire, op, key string, do func(context.Context) (T, error)) (T, error) {
	var mu sync.Mutex
	var value T
	err := w.pass(ctx, op, key, func(ctx context.Context) error {
		v, err := do(ctx)
		mu.Lock()
		defer mu.Unlock()
		value = v
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return value, err
}

func (w *wire) TryAcquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	return answered(ctx, w, "acquire", r.Name, func(ctx context.Context) (lease.Grant, error) { return w.Store.TryAcquire(ctx, r) })
}

func (w *wire) Renew(ctx context.Context, g lease.Grant) (lease.Grant, error) {
	return answered(ctx, w, "renew", g.Name, func(ctx context.Context) (lease.Grant, error) { return w.Store.Renew(ctx, g) })
}

func (w *wire) Release(ctx context.Context, g lease.Grant, f lease.Final) error {
	return w.pass(ctx, "release", g.Name, func(ctx context.Context) error { return w.Store.Release(ctx, g, f) })
}

func (w *wire) Inspect(ctx context.Context, name string) (lease.Info, error) {
	return answered(ctx, w, "inspect", name, func(ctx context.Context) (lease.Info, error) { return w.Store.Inspect(ctx, name) })
}

func (w *wire) Clock() lease.Clock { return w.Store.(lease.Clocked).Clock() }

func (w *wire) Load(ctx context.Context, key string) (lease.Record, error) {
	return answered(ctx, w, "load", key, func(ctx context.Context) (lease.Record, error) { return w.records().Load(ctx, key) })
}

func (w *wire) Swap(ctx context.Context, old lease.Record, v []byte, keep time.Duration) (lease.Record, error) {
	return answered(ctx, w, "swap", old.Key, func(ctx context.Context) (lease.Record, error) {
		return w.records().Swap(ctx, old, v, keep)
	})
}

func (w *wire) records() lease.Records { return w.Store.(lease.Records) }

func (w *wire) Scan(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return w.cutting(func(yield func(lease.Record, error) bool) {
		var all []lease.Record
		err := w.pass(ctx, "scan", prefix, func(ctx context.Context) error {
			all = nil
			for rec, err := range w.records().Scan(ctx, prefix) {
				if err != nil {
					return err
				}
				all = append(all, rec)
			}
			return nil
		})
		if err != nil {
			yield(lease.Record{}, err)
			return
		}
		for _, rec := range all {
			if !yield(rec, nil) {
				return
			}
		}
	})
}

func isRow(key string) bool { return strings.HasPrefix(key, groupName+"/s/") }

// wasCut is how many scans were cut short.
func (w *wire) wasCut() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts
}
