//go:build unix

package check

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// guarded is one operation on a guarded key.
type guarded struct {
	worker       string
	put          bool
	entry        register
	outcome      history.Outcome
	called, back time.Duration
	before       int // of the operations that were done: how many wrote or read a lower token
}

func (g guarded) String() string {
	verb := "get"
	if g.put {
		verb = "put"
	}
	return fmt.Sprintf("%s %q with token %d of %s: %s", verb, g.entry.value, g.entry.token, g.entry.holder, g.outcome)
}

type opKey struct {
	worker   string
	life, op int
}

// guardedOf pairs the calls with their returns, by key. A call without a return is that of a process that was killed.
func guardedOf(events []history.Event) map[string][]guarded {
	keys := map[string][]guarded{}
	where := map[opKey]int{}
	for _, e := range events {
		at := opKey{e.Worker, e.Life, e.Op}
		entry := register{token: lease.Token(e.Token), holder: e.Holder, value: e.Value}
		switch e.Kind {
		case history.PutCall, history.GetCall:
			where[at] = len(keys[e.Lock])
			keys[e.Lock] = append(keys[e.Lock], guarded{
				worker: e.Worker, put: e.Kind == history.PutCall, entry: entry, outcome: history.Unknown, called: e.At, back: math.MaxInt64,
			})
		case history.PutBack, history.GetBack:
			g := &keys[e.Lock][where[at]]
			g.entry, g.outcome, g.back = entry, e.Outcome, e.At
		default:
		}
	}
	return keys
}

// checkGuards checks what became of guarded operations.
func (rep *Report) checkGuards(events []history.Event, r Rules) {
	for key, ops := range guardedOf(events) {
		for _, op := range ops {
			if op.put {
				rep.Writes[op.outcome]++
			} else {
				rep.Reads++
			}
		}
		rep.checkStale(key, ops)
		rep.checkReads(key, ops)
		rep.checkRegister(key, ops, r.Late)
	}
}

// checkStale looks for a write that was done although one with a higher token had been done before it was sent. The register's
// check finds it, too; this one says which.
func (rep *Report) checkStale(key string, ops []guarded) {
	var writes []guarded
	for _, op := range ops {
		if op.put && op.outcome == history.Done {
			writes = append(writes, op)
		}
	}
	back := slices.Clone(writes)
	slices.SortFunc(writes, func(a, b guarded) int { return int(a.called - b.called) })
	slices.SortFunc(back, func(a, b guarded) int { return int(a.back - b.back) })
	var highest guarded
	n := 0
	for _, w := range writes {
		for ; n < len(back) && back[n].back < w.called; n++ {
			if back[n].entry.token > highest.entry.token {
				highest = back[n]
			}
		}
		if w.entry.token < highest.entry.token {
			rep.violated(w.called, key, "a stale write was stored: %s after %s", w, highest)
		}
	}
}

// checkReads looks for a read that gave an older value than one that had been written before it was asked for.
func (rep *Report) checkReads(key string, ops []guarded) {
	written := map[string]guarded{}
	var back, reads []guarded
	for _, op := range ops {
		switch {
		case op.put:
			written[op.entry.value] = op
			if op.outcome == history.Done {
				back = append(back, op)
			}
		case op.outcome == history.Done:
			reads = append(reads, op)
		}
	}
	slices.SortFunc(reads, func(a, b guarded) int { return int(a.called - b.called) })
	slices.SortFunc(back, func(a, b guarded) int { return int(a.back - b.back) })
	var newest guarded // the write that was sent last of those that had been done
	n := 0
	for _, r := range reads {
		for ; n < len(back) && back[n].back < r.called; n++ {
			if back[n].called > newest.called {
				newest = back[n]
			}
		}
		of, known := written[r.entry.value]
		older := known && of.outcome == history.Done && of.back < newest.called
		if older || r.entry.token < newest.entry.token {
			rep.violated(r.called, key, "a stale read of %s: %s after %s", r.worker, r, newest)
		}
	}
}

// register is the state of a fenced register.
type register struct {
	token  lease.Token
	holder string
	value  string
	done   int // operations that their callers were told to be done
}

// with is what the register has when w is stored.
func (r register) with(w register) register {
	w.done = r.done
	return w
}

func (r register) admits(w register) bool {
	return fence.Admits(fence.Entry{Token: r.token, Holder: r.holder}, w.token, w.holder)
}

// fencedRegister is what a guard must look like for one key. A write of unknown outcome may be done or not: hence the states
// are sets. The token never falls, so what was done with lower tokens comes first in any order that can be; to say so spares
// the search most of its dead ends.
var fencedRegister = porcupine.NondeterministicModel{
	Init: func() []any { return []any{register{}} },
	Step: func(state, input, _ any) []any {
		have, op := state.(register), input.(guarded)
		admitted := have.admits(op.entry)
		if op.outcome == history.Done {
			next := have.with(op.entry)
			next.done++
			if have.done < op.before || op.put && !admitted || !op.put && have != have.with(op.entry) {
				return nil
			}
			return []any{next}
		}
		switch {
		case op.outcome == history.Refused && admitted:
			return nil
		case op.outcome == history.Unknown && admitted:
			return []any{have.with(op.entry), have}
		}
		return []any{have}
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
}

// countLower fills in guarded.before.
func countLower(ops []guarded) []guarded {
	var tokens []lease.Token
	for _, op := range ops {
		if op.outcome == history.Done {
			tokens = append(tokens, op.entry.token)
		}
	}
	slices.Sort(tokens)
	counted := slices.Clone(ops)
	for i := range counted {
		counted[i].before, _ = slices.BinarySearch(tokens, counted[i].entry.token)
	}
	return counted
}

// registerTimeout bounds the search for an order.
const registerTimeout = time.Minute

// checkRegister looks for an order of the operations that a fenced register could have done.
func (rep *Report) checkRegister(key string, ops []guarded, late time.Duration) {
	var all []porcupine.Operation
	for _, op := range countLower(ops) {
		if !op.put && op.outcome != history.Done || op.outcome == history.Nothing {
			continue // it says nothing
		}
		back := op.back
		if op.put && op.outcome == history.Unknown {
			back = op.called + late
		}
		all = append(all, porcupine.Operation{Input: op, Call: int64(op.called), Return: int64(back)})
	}
	switch porcupine.CheckOperationsTimeout(fencedRegister.ToModel(), all, registerTimeout) {
	case porcupine.Illegal:
		rep.violated(0, key, "its %d guarded operations have no order in which a fenced register could have done them", len(all))
	case porcupine.Unknown:
		rep.violated(0, key, "no order of its %d guarded operations was found in %v", len(all), registerTimeout)
	case porcupine.Ok:
	}
}
