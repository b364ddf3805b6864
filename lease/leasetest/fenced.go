package leasetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// recordedGuard puts what a guard does into a history.
type recordedGuard struct {
	g fence.Guard
	h *History
}

func (r recordedGuard) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	op := r.h.begin(guardedOp{key: key, put: true, entry: fence.Entry{Value: value, Token: token, Holder: holder}})
	err := r.g.Put(ctx, key, value, token, holder)
	switch {
	case err == nil:
		r.h.end(op, done, op.entry)
	case errors.Is(err, lease.ErrStale):
		r.h.end(op, refused, op.entry)
	case errors.Is(err, lease.ErrInDoubt):
		r.h.end(op, unknown, op.entry)
	default:
		r.h.end(op, nothing, op.entry)
	}
	return err
}

func (r recordedGuard) Get(ctx context.Context, key string) (fence.Entry, error) {
	op := r.h.begin(guardedOp{key: key})
	e, err := r.g.Get(ctx, key)
	if err != nil {
		r.h.end(op, nothing, e)
		return e, err
	}
	r.h.end(op, done, e)
	return e, nil
}

// outcome of a guarded operation, as its caller was told.
type outcome string

const (
	done    outcome = "done"
	refused outcome = "refused"
	unknown outcome = "unknown" // it may be done at any later time
	nothing outcome = "nothing" // certainly not done
)

type guardedOp struct {
	key          string
	put          bool
	entry        fence.Entry // written or read
	outcome      outcome
	called, back int64
	before       int // of the operations that were done: how many wrote or read a lower token
}

func (h *History) begin(op guardedOp) *guardedOp {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	op.called, op.outcome, op.back = h.clock, unknown, math.MaxInt64
	h.guarded = append(h.guarded, &op)
	return &op
}

func (h *History) end(op *guardedOp, o outcome, e fence.Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	op.outcome, op.entry = o, e
	if o != unknown {
		op.back = h.clock
	}
}

// register is the state of a fenced register.
type register struct {
	token         lease.Token
	holder, value string
	done          int // puts and gets that their callers were told to be done
}

func (r register) with(e fence.Entry) register {
	return register{e.Token, e.Holder, string(e.Value), r.done}
}

// fencedRegister is what a guard must look like for one key: one register whose writes are admitted by fence.Admits.
var fencedRegister = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) {
		have, op := state.(register), input.(guardedOp)
		// The token never falls, so what was done with lower tokens comes first in any order that can be. To say so spares
		// the search most of its dead ends.
		inTurn := have.done >= op.before
		if !op.put {
			next := have
			next.done++
			return inTurn && have == have.with(op.entry), next
		}
		admitted := fence.Admits(fence.Entry{Token: have.token, Holder: have.holder}, op.entry.Token, op.entry.Holder)
		next := have
		if admitted {
			next = have.with(op.entry)
		}
		switch op.outcome {
		case done:
			next.done++
			return inTurn && admitted, next
		case refused:
			return !admitted, have
		case nothing:
			return true, have
		case unknown: // one that was never done stands at the end of time
			return true, next
		}
		return false, have
	},
	DescribeOperation: func(input, _ any) string {
		op := input.(guardedOp)
		verb := "get"
		if op.put {
			verb = "put"
		}
		return fmt.Sprintf("%s %q of token %d by %s: %s", verb, op.entry.Value, op.entry.Token, op.entry.Holder, op.outcome)
	},
}

// countLower fills in guardedOp.before.
func countLower(ops []porcupine.Operation) {
	var tokens []lease.Token
	for _, o := range ops {
		if op := o.Input.(guardedOp); op.outcome == done {
			tokens = append(tokens, op.entry.Token)
		}
	}
	slices.Sort(tokens)
	for i := range ops {
		op := ops[i].Input.(guardedOp)
		op.before, _ = slices.BinarySearch(tokens, op.entry.Token)
		ops[i].Input = op
	}
}

// checkGuarded looks for an order of the guarded operations of each key that a fenced register could have done.
func (h *History) checkGuarded(t testing.TB) {
	t.Helper()
	keys := map[string][]porcupine.Operation{}
	for _, op := range h.guarded {
		if !op.put && op.outcome != done {
			continue // a read that failed says nothing
		}
		keys[op.key] = append(keys[op.key], porcupine.Operation{Input: *op, Call: op.called, Return: op.back})
	}
	for key, ops := range keys {
		countLower(ops)
		switch porcupine.CheckOperationsTimeout(fencedRegister, ops, 20*time.Second) {
		case porcupine.Ok:
		case porcupine.Illegal:
			t.Errorf("the guard of %q did what no fenced register does:", key)
			for _, op := range ops {
				t.Logf("%6d-%d %s", op.Call, op.Return, fencedRegister.DescribeOperation(op.Input, nil))
			}
		case porcupine.Unknown:
			t.Errorf("no order was found for the %d operations on %q in time", len(ops), key)
		}
	}
}
