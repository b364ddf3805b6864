package leasetest

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

type annotationKey struct{}

type annotation struct{ op, name string }

func annotate(ctx context.Context, op, name string) context.Context {
	return context.WithValue(ctx, annotationKey{}, annotation{op, name})
}

func annotationOf(ctx context.Context) annotation {
	a, _ := ctx.Value(annotationKey{}).(annotation)
	return a
}

// Op is the operation that Annotate put into ctx: "acquire", "renew", "release", "save", "inspect", "wait", "watch", "list",
// "load", "swap", "put" or "get"; empty for what a store does on its own.
func Op(ctx context.Context) string { return annotationOf(ctx).op }

// Annotate is s, with the operation in the context of every call, so that a transport below s can tell which it serves.
// The result has the optional interfaces that s has; Unwrap gives s.
func Annotate(s lease.Store) lease.Store { return annotateStore(s, nil) }

// AnnotateGuard is g, with the operation in the context of every call.
func AnnotateGuard(g fence.Guard) fence.Guard { return annotatedGuard{g} }

// witness sees every call of a store, when it begins and when it has returned.
type witness interface {
	begins(c storeCall)
	saw(c storeCall)
	waited() // a wait for a lock is over
}

// storeCall is a call of a store, not a request: it may have taken several.
type storeCall struct {
	op, name string
	began    time.Time
	ended    time.Time
	asked    lease.Grant // what was asked with
	grant    lease.Grant // what was given, or what was asked with
	final    lease.Final // of a release; a save has its value there
	info     lease.Info  // that an inspection gave
	err      error
}

func annotateStore(s lease.Store, w witness) lease.Store {
	a := annotated{s: s, w: w}
	waiter, waits := s.(lease.Waiter)
	looker, looks := s.(lease.Looker) // which no Waiter is
	lister, lists := s.(lease.Lister)
	records, keeps := s.(lease.Records)
	wa, lo, li, re := annotatedWaiter{waiter, w}, annotatedLooker{looker, w}, annotatedLister{lister}, annotatedRecords{records}
	switch {
	case waits && lists && keeps:
		return struct {
			annotated
			annotatedWaiter
			annotatedLister
			annotatedRecords
		}{a, wa, li, re}
	case waits && lists:
		return struct {
			annotated
			annotatedWaiter
			annotatedLister
		}{a, wa, li}
	case waits && keeps:
		return struct {
			annotated
			annotatedWaiter
			annotatedRecords
		}{a, wa, re}
	case looks && lists && keeps:
		return struct {
			annotated
			annotatedLooker
			annotatedLister
			annotatedRecords
		}{a, lo, li, re}
	case looks && lists:
		return struct {
			annotated
			annotatedLooker
			annotatedLister
		}{a, lo, li}
	case looks && keeps:
		return struct {
			annotated
			annotatedLooker
			annotatedRecords
		}{a, lo, re}
	case lists && keeps:
		return struct {
			annotated
			annotatedLister
			annotatedRecords
		}{a, li, re}
	case waits:
		return struct {
			annotated
			annotatedWaiter
		}{a, wa}
	case looks:
		return struct {
			annotated
			annotatedLooker
		}{a, lo}
	case lists:
		return struct {
			annotated
			annotatedLister
		}{a, li}
	case keeps:
		return struct {
			annotated
			annotatedRecords
		}{a, re}
	}
	return a
}

type annotated struct {
	s lease.Store
	w witness
}

// Unwrap is the store under the annotations.
func (a annotated) Unwrap() lease.Store { return a.s }

// Clock is the clock of the store, or nil.
func (a annotated) Clock() lease.Clock {
	if c, ok := a.s.(lease.Clocked); ok {
		return c.Clock()
	}
	return nil
}

func (a annotated) Limits() lease.Limits { return a.s.Limits() }

func (a annotated) Close(ctx context.Context) error { return a.s.Close(annotate(ctx, "close", "")) }

// call makes c and tells the witness of it. do gives what was given.
func (a annotated) call(ctx context.Context, c storeCall, do func(context.Context) (lease.Grant, error)) (lease.Grant, error) {
	c.name, c.began, c.grant = c.asked.Name, time.Now(), c.asked
	if a.w != nil {
		a.w.begins(c)
	}
	got, err := do(annotate(ctx, c.op, c.name))
	if a.w != nil {
		if err == nil {
			c.grant = got
		}
		c.ended, c.err = time.Now(), err
		a.w.saw(c)
	}
	return got, err
}

func (a annotated) TryAcquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	c := storeCall{op: "acquire", asked: lease.Grant{Request: r}}
	return a.call(ctx, c, func(ctx context.Context) (lease.Grant, error) { return a.s.TryAcquire(ctx, r) })
}

func (a annotated) Renew(ctx context.Context, g lease.Grant) (lease.Grant, error) {
	c := storeCall{op: "renew", asked: g}
	return a.call(ctx, c, func(ctx context.Context) (lease.Grant, error) { return a.s.Renew(ctx, g) })
}

func (a annotated) Save(ctx context.Context, g lease.Grant, value []byte) (lease.Grant, error) {
	c := storeCall{op: "save", asked: g, final: lease.Final{Value: value}}
	return a.call(ctx, c, func(ctx context.Context) (lease.Grant, error) { return a.s.Save(ctx, g, value) })
}

func (a annotated) Release(ctx context.Context, g lease.Grant, f lease.Final) error {
	c := storeCall{op: "release", asked: g, final: f}
	_, err := a.call(ctx, c, func(ctx context.Context) (lease.Grant, error) { return g, a.s.Release(ctx, g, f) })
	return err
}

func (a annotated) Inspect(ctx context.Context, name string) (lease.Info, error) {
	c := storeCall{op: "inspect", name: name, began: time.Now()}
	info, err := a.s.Inspect(annotate(ctx, c.op, name), name)
	if a.w != nil {
		c.ended, c.info, c.err = time.Now(), info, err
		a.w.saw(c)
	}
	return info, err
}

// Watch implements lease.Watcher. A store that hears of no loss is watched in vain.
func (a annotated) Watch(ctx context.Context, g lease.Grant) error {
	w, ok := a.s.(lease.Watcher)
	if !ok {
		<-ctx.Done()
		return lease.Cause(ctx)
	}
	c := storeCall{op: "watch", name: g.Name, began: time.Now(), asked: g, grant: g}
	c.err = w.Watch(annotate(ctx, c.op, g.Name), g)
	if a.w != nil && errors.Is(c.err, lease.ErrLost) {
		c.ended = time.Now()
		a.w.saw(c)
	}
	return c.err
}

type annotatedWaiter struct {
	s lease.Waiter
	w witness
}

func (a annotatedWaiter) Wait(ctx context.Context, h *lease.HeldError) error {
	err := a.s.Wait(annotate(ctx, "wait", h.Name), h)
	if a.w != nil {
		a.w.waited()
	}
	return err
}

type annotatedLooker struct {
	s lease.Looker
	w witness
}

func (a annotatedLooker) Look(ctx context.Context, name string) (lease.Token, error) {
	c := storeCall{op: "wait", name: name, began: time.Now()}
	token, err := a.s.Look(annotate(ctx, c.op, name), name)
	if a.w != nil {
		a.w.waited()
		c.ended, c.err = time.Now(), err
		a.w.saw(c)
	}
	return token, err
}

type annotatedLister struct{ l lease.Lister }

func (a annotatedLister) List(ctx context.Context, prefix string) iter.Seq2[lease.Info, error] {
	return a.l.List(annotate(ctx, "list", prefix), prefix)
}

type annotatedRecords struct{ r lease.Records }

func (a annotatedRecords) Load(ctx context.Context, key string) (lease.Record, error) {
	return a.r.Load(annotate(ctx, "load", key), key)
}

func (a annotatedRecords) Swap(ctx context.Context, old lease.Record, value []byte, keep time.Duration) (lease.Record, error) {
	return a.r.Swap(annotate(ctx, "swap", old.Key), old, value, keep)
}

func (a annotatedRecords) Scan(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return a.r.Scan(annotate(ctx, "list", prefix), prefix)
}

type annotatedGuard struct{ g fence.Guard }

func (a annotatedGuard) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	return a.g.Put(annotate(ctx, "put", key), key, value, token, holder)
}

func (a annotatedGuard) Get(ctx context.Context, key string) (fence.Entry, error) {
	return a.g.Get(annotate(ctx, "get", key), key)
}
