package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func operatorCases() []storeCase {
	return []storeCase{
		{name: "GE02_BreakWhatWasInspected", run: breakInspected},
		{name: "GE02_BreakTheLiving", run: breakTheLiving},
		{name: "GE02_BreakNothing", run: breakNothing},
		{name: "FloorRaisesTheNextToken", run: floorRaises},
	}
}

// under is what the store under the annotations can do, T being an optional interface.
func under[T any](h *host) (T, bool) {
	u, ok := h.store.(interface{ Unwrap() lease.Store })
	require.True(h.e, ok)
	t, ok := u.Unwrap().(T)
	if !ok {
		h.e.Logf("the store is no %T", (*T)(nil))
	}
	return t, ok
}

func (e *env) breaking() context.Context { return annotate(e.Context(), "break", "job") }

var outOfOrder = lease.Reason{By: "an operator", Why: "the holder is stuck"}

// breakInspected is GE-02 b: between looking and breaking the lock changed hands.
func breakInspected(e *env) {
	a, b := e.host("a"), e.host("b")
	op, ok := under[lease.Breaker](b)
	if !ok {
		return
	}
	old := a.take("job")
	seen := b.inspect("job")
	a.free(old)
	g := a.take("job")
	want := b.inspect("job")
	for _, token := range []lease.Token{seen.Token, g.Token - 1, g.Token + 1} {
		require.ErrorIs(e, op.Break(e.breaking(), "job", token, outOfOrder), lease.ErrConflict, "token %d", token)
		require.Equal(e, want, b.inspect("job"))
	}
	g, err := a.store.Renew(e.Context(), g)
	require.NoError(e, err)
	a.free(g)
}

// breakTheLiving is GE-02 c: the holder learns it, the next token is higher, and the reason stays.
func breakTheLiving(e *env) {
	a, b := e.host("a"), e.host("b")
	op, ok := under[lease.Breaker](b)
	if !ok {
		return
	}
	l := a.acquire(a.client(), "job")
	require.NoError(e, l.Save(e.Context(), []byte("kept")))
	began := time.Now()
	require.NoError(e, op.Break(e.breaking(), "job", l.Token(), outOfOrder))
	e.history.Forget("job") // both may trust until the next renewal
	info := b.inspect("job")
	require.Equal(e, lease.Free, info.State)
	require.Equal(e, "kept", string(info.Value))
	require.NotNil(e, info.Broken)
	require.Equal(e, outOfOrder.By, info.Broken.By)
	require.Equal(e, outOfOrder.Why, info.Broken.Why)
	require.Equal(e, l.Token(), info.Broken.Token)
	require.WithinDuration(e, began, info.Broken.At, 5*time.Second)
	require.Error(e, op.Break(e.breaking(), "job", l.Token(), outOfOrder), "it is broken already")

	next := b.acquire(b.client(), "job")
	require.Greater(e, next.Token(), l.Token())
	e.await(l.Done(), e.TTL/2+time.Second, "the loss at the next renewal")
	require.ErrorIs(e, l.Err(), lease.ErrLost)
	require.ErrorIs(e, l.Release(e.Context()), lease.ErrLost)
	require.NoError(e, next.Err())
	require.NoError(e, next.Release(e.Context()))
}

// breakNothing is GE-02 d: a free lock, an unknown name, two operators at once; and a lock whose holder is dead.
func breakNothing(e *env) {
	a, b := e.host("a"), e.host("b")
	op, ok := under[lease.Breaker](b)
	if !ok {
		return
	}
	never := op.Break(e.breaking(), "never locked", 1, outOfOrder)
	require.ErrorIs(e, never, lease.ErrConflict)
	require.Equal(e, lease.Absent, b.inspect("never locked").State)
	g := a.take("job")
	a.free(g)
	free := op.Break(e.breaking(), "job", g.Token, outOfOrder)
	require.ErrorIs(e, free, lease.ErrConflict)
	require.NotEqual(e, never.Error(), free.Error(), "the two are told apart")

	g = a.take("job")
	require.ErrorIs(e, op.Break(e.breaking(), "job", g.Token, lease.Reason{}), lease.ErrInvalid, "by nobody")
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = op.Break(e.breaking(), "job", g.Token, outOfOrder) })
	}
	wg.Wait()
	require.True(e, (errs[0] == nil) != (errs[1] == nil), "one breaks it: %v", errs)
	require.ErrorIs(e, errors.Join(errs...), lease.ErrConflict)
	e.history.Release("job", g.Token)

	g = a.take("job")
	time.Sleep(e.takeover())
	require.NoError(e, op.Break(e.breaking(), "job", g.Token, outOfOrder), "a dead holder's lock can be broken")
	b.free(b.take("job"))
}

func floorRaises(e *env) {
	a, b := e.host("a"), e.host("b")
	op, ok := under[lease.Floorer](b)
	if !ok {
		return
	}
	ctx := annotate(e.Context(), "floor", "job")
	g := a.take("job")
	want := b.inspect("job")
	require.ErrorIs(e, op.RaiseFloor(ctx, "job", g.Token+1000), lease.ErrHeld)
	require.Equal(e, want, b.inspect("job"))
	a.free(g)
	floor := g.Token + 1_000_000
	require.NoError(e, op.RaiseFloor(ctx, "job", floor))
	require.NoError(e, op.RaiseFloor(ctx, "job", floor), "it is reached already")
	require.NoError(e, op.RaiseFloor(ctx, "job", 1), "it is passed already")
	next := a.take("job")
	require.Greater(e, next.Token, floor)
	a.free(next)

	require.NoError(e, op.RaiseFloor(ctx, "never locked", floor*2))
	next = a.take("never locked")
	require.Greater(e, next.Token, floor*2)
	require.ErrorIs(e, op.RaiseFloor(ctx, "another", lease.MaxToken+1), lease.ErrInvalid)
}
