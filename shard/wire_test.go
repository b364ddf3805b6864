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

func (w *wire) TryAcquire(ctx context.Context, r lease.Request) (g lease.Grant, err error) {
	err = w.pass(ctx, "acquire", r.Name, func(ctx context.Context) (err error) { g, err = w.Store.TryAcquire(ctx, r); return err })
	return g, err
}

func (w *wire) Renew(ctx context.Context, g lease.Grant) (next lease.Grant, err error) {
	err = w.pass(ctx, "renew", g.Name, func(ctx context.Context) (err error) { next, err = w.Store.Renew(ctx, g); return err })
	return next, err
}

func (w *wire) Release(ctx context.Context, g lease.Grant, f lease.Final) error {
	return w.pass(ctx, "release", g.Name, func(ctx context.Context) error { return w.Store.Release(ctx, g, f) })
}

func (w *wire) Inspect(ctx context.Context, name string) (i lease.Info, err error) {
	err = w.pass(ctx, "inspect", name, func(ctx context.Context) (err error) { i, err = w.Store.Inspect(ctx, name); return err })
	return i, err
}

func (w *wire) Clock() lease.Clock { return w.Store.(lease.Clocked).Clock() }

func (w *wire) Load(ctx context.Context, key string) (r lease.Record, err error) {
	err = w.pass(ctx, "load", key, func(ctx context.Context) (err error) { r, err = w.records().Load(ctx, key); return err })
	return r, err
}

func (w *wire) Swap(ctx context.Context, old lease.Record, v []byte, keep time.Duration) (r lease.Record, err error) {
	err = w.pass(ctx, "swap", old.Key, func(ctx context.Context) (err error) { r, err = w.records().Swap(ctx, old, v, keep); return err })
	return r, err
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
