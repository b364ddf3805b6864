//go:build unix

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
	"github.com/cloudlease/cloudlease/lease"
)

// round asks for a lock, with little patience or much, holds it for a while and gives it back.
func (w *worker) round(ctx context.Context) {
	name := LockName(w.rand.IntN(w.Locks))
	patience := time.Second + w.upTo(3*w.ttl)
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	once := w.rand.IntN(5) == 0
	l, ok := w.ask(waiting, name, once)
	if !ok {
		rest(ctx, 50*time.Millisecond+w.upTo(250*time.Millisecond))
		return
	}
	w.hold(ctx, l, w.upTo(w.upTo(3*w.ttl)+1)) // often short
	if ctx.Err() != nil && l.Err() == nil && w.rand.IntN(2) == 0 {
		return // closing the client gives it back
	}
	w.giveBack(ctx, l)
	rest(ctx, w.upTo(w.ttl/10))
	if w.rand.IntN(8) == 0 {
		w.putLate(ctx, l)
	}
}

// ask tries to get a lock.
func (w *worker) ask(ctx context.Context, name string, once bool) (*lease.Lease, bool) {
	w.log.Add(history.Event{Kind: history.Waiting, Lock: name})
	acquire := w.client.Acquire
	if once {
		acquire = w.client.TryAcquire
	}
	l, err := acquire(ctx, name)
	if err != nil {
		e := history.Event{Kind: history.GaveUp, Lock: name, Err: err.Error()}
		if errors.Is(err, lease.ErrInDoubt) {
			e.Outcome = history.Unknown
		}
		w.log.Add(e)
		if !expected(err, lease.ErrHeld, lease.ErrUnavailable, lease.ErrInDoubt) {
			w.found("acquire %q: %v", name, err)
		}
		return nil, false
	}
	w.current.Store(l)
	w.believe(history.Granted, l)
	return l, true
}

// hold works under l for about d, or until it is lost.
func (w *worker) hold(ctx context.Context, l *lease.Lease, d time.Duration) {
	for until := history.Now() + d; history.Now() < until && ctx.Err() == nil; {
		at := history.Now() // whoever trusts a moment later trusts now, because a lease that was lost stays lost
		if err := l.Err(); err != nil {
			w.event(history.Ended, l, err)
			w.putLate(ctx, l)
			return
		}
		w.log.Add(history.Event{
			At: at, Kind: history.Acted, Lock: l.Name(), Token: uint64(l.Token()), Holder: l.Holder(),
		})
		switch n := w.rand.IntN(20); {
		case n < 13:
			w.put(l)
		case n < 17:
			w.get(l.Name())
		case n < 18:
			w.save(ctx, l)
		}
		rest(ctx, 10*time.Millisecond+w.upTo(w.ttl/40))
	}
}

// putLate does what no holder should: it writes although its lease is over, when another may have written already. The fence
// has to tell.
func (w *worker) putLate(ctx context.Context, l *lease.Lease) {
	rest(ctx, w.upTo(w.ttl))
	w.put(l)
}

func (w *worker) giveBack(ctx context.Context, l *lease.Lease) {
	w.event(history.Leaving, l, nil)
	err := l.Release(ctx)
	if err != nil && !expected(err, lease.ErrLost, lease.ErrUnavailable, lease.ErrInDoubt) {
		w.found("release %q: %v", l.Name(), err)
	}
	w.current.Store(nil)
	w.event(history.Released, l, err)
}

// patience bounds one guarded operation.
const patience = 1500 * time.Millisecond

// put writes a value that nobody else writes, in the name of l.
func (w *worker) put(l *lease.Lease) {
	w.ops++
	e := history.Event{
		Lock: l.Name(), Token: uint64(l.Token()), Holder: l.Holder(), Op: w.ops, Value: fmt.Sprintf("%s.%d-%d", w.Name, w.Life, w.ops),
	}
	e.Kind = history.PutCall
	w.log.Add(e)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := w.guard.Put(ctx, e.Lock, []byte(e.Value), l.Token(), e.Holder)
	e.Kind = history.PutBack
	switch {
	case err == nil:
		e.Outcome = history.Done
	case errors.Is(err, lease.ErrStale):
		e.Outcome = history.Refused
	case errors.Is(err, lease.ErrInDoubt):
		e.Outcome = history.Unknown
	case errors.Is(err, lease.ErrUnavailable):
		e.Outcome = history.Nothing
	default:
		e.Outcome = history.Unknown
		w.found("put %q: %v", e.Lock, err)
	}
	if err != nil {
		e.Err = err.Error()
	}
	w.log.Add(e)
}

func (w *worker) get(key string) {
	w.ops++
	e := history.Event{Kind: history.GetCall, Lock: key, Op: w.ops}
	w.log.Add(e)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	have, err := w.guard.Get(ctx, key)
	e.Kind, e.Outcome = history.GetBack, history.Done
	if err != nil {
		e.Outcome, e.Err = history.Nothing, err.Error()
		if !expected(err, lease.ErrUnavailable) {
			w.found("get %q: %v", key, err)
		}
	}
	e.Token, e.Holder, e.Value = uint64(have.Token), have.Holder, string(have.Value)
	w.log.Add(e)
}

func (w *worker) save(ctx context.Context, l *lease.Lease) {
	err := l.Save(ctx, fmt.Appendf(nil, "%s.%d", w.Name, w.Life))
	switch {
	case err == nil:
		w.believe(history.Renewed, l)
	case !expected(err, lease.ErrLost, lease.ErrUnavailable, lease.ErrInDoubt):
		w.found("save %q: %v", l.Name(), err)
	}
}

// sweep takes every lock once more.
func (w *worker) sweep(ctx context.Context) {
	for n := range w.Locks {
		for ctx.Err() == nil {
			if l, ok := w.ask(ctx, LockName(n), false); ok {
				w.put(l)
				w.get(l.Name())
				w.giveBack(ctx, l)
				break
			}
			rest(ctx, time.Second)
		}
	}
}

// upTo is a random time.
func (w *worker) upTo(d time.Duration) time.Duration { return time.Duration(w.rand.Int64N(int64(d))) }

// expected tells whether err is of one of these classes.
func expected(err error, classes ...error) bool {
	for _, class := range classes {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
