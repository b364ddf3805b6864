package consulfake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

// maxOps is how many operations a transaction may have; older servers take 64.
const maxOps = 128

// kvOp is an operation of a transaction.
type kvOp struct {
	Verb  string
	Index uint64
	Entry
}

type txnResult struct{ KV *Entry }

type txnError struct {
	OpIndex int
	What    string
}

type txnAnswer struct {
	Results []txnResult
	Errors  []txnError
}

// transaction works on a copy of the keys, which replaces them if all its operations pass.
type transaction struct {
	*call
	index   uint64
	keys    map[string]*Entry
	changed bool
}

func (c *call) txn() (any, error) {
	var in []struct {
		KV *struct {
			Verb    string
			Key     string
			Value   []byte
			Flags   uint64
			Index   uint64
			Session string
		}
	}
	if err := json.NewDecoder(c.r.Body).Decode(&in); err != nil {
		return nil, fail(http.StatusBadRequest, "Failed to parse body: %v", err)
	}
	if len(in) > maxOps {
		return nil, fail(http.StatusRequestEntityTooLarge, "Transaction contains too many operations (%d > %d)", len(in), maxOps)
	}
	var ops []kvOp
	for _, op := range in {
		if op.KV == nil {
			return nil, fail(http.StatusBadRequest, "consulfake knows KV operations only")
		}
		ops = append(ops, kvOp{op.KV.Verb, op.KV.Index, Entry{Key: op.KV.Key, Value: op.KV.Value, Flags: op.KV.Flags, Session: op.KV.Session}})
	}
	c.meta(c.index)
	c.w.Header().Del("X-Consul-Index") // a transaction has none
	if refused := c.precheck(ops); len(refused) > 0 {
		return conflicting{txnAnswer{Errors: refused}}, nil
	}
	t := &transaction{call: c, index: c.index + 1, keys: maps.Clone(c.keys)}
	answer := txnAnswer{Results: []txnResult{}}
	for i, op := range ops {
		results, err := t.apply(op)
		if err != nil {
			answer.Errors = append(answer.Errors, txnError{i, err.Error()})
			continue
		}
		for _, e := range results {
			answer.Results = append(answer.Results, txnResult{e})
		}
	}
	if len(answer.Errors) > 0 {
		answer.Results = nil
		return conflicting{answer}, nil
	}
	t.commit()
	return answer, nil
}

// precheck is what the leader looks at before it lets a transaction into the log: rights and lock-delays.
func (c *call) precheck(ops []kvOp) []txnError {
	var refused []txnError
	for i, op := range ops {
		access := "write"
		switch op.Verb {
		case "get", "get-or-empty", "get-tree":
			continue // the answer leaves out what may not be read
		case "check-session", "check-index":
			access = "read"
		}
		if err := c.allow(keyRules, "key", access, op.Key); err != nil {
			refused = append(refused, txnError{i, err.Error()})
		} else if op.Verb == "lock" && c.delayed(op.Key) {
			refused = append(refused, txnError{i, fmt.Sprintf("failed to lock key %q due to lock delay", op.Key)})
		}
	}
	return refused
}

func (t *transaction) commit() {
	if !t.changed {
		return
	}
	t.Server.keys = t.keys
	t.kvIndex = t.next()
}

// set writes an entry, unless it is the same as before.
func (t *transaction) set(e Entry) *Entry {
	have := t.keys[e.Key]
	e.CreateIndex = t.index
	if have != nil {
		e.CreateIndex = have.CreateIndex
		if have.Session == e.Session && have.LockIndex == e.LockIndex && have.Flags == e.Flags && bytes.Equal(have.Value, e.Value) {
			return bare(have)
		}
	}
	e.ModifyIndex = t.index
	t.keys[e.Key], t.changed = &e, true
	return bare(&e)
}

// bare is an entry without its value, as the answer to a write has it.
func bare(e *Entry) *Entry {
	out := *e
	out.Value = nil
	return &out
}

func (t *transaction) apply(op kvOp) ([]*Entry, error) {
	have := t.keys[op.Key]
	switch op.Verb {
	case "set":
		e := op.Entry
		e.Session = ""
		if have != nil {
			e.Session = have.Session
		}
		return []*Entry{t.set(e)}, nil
	case "cas":
		if op.Index == 0 && have != nil || op.Index != 0 && (have == nil || have.ModifyIndex != op.Index) {
			return nil, fmt.Errorf("failed to set key %q, index is stale", op.Key)
		}
		op.Verb = "set"
		return t.apply(op)
	case "lock", "unlock":
		return t.lock(op, have)
	case "delete":
		if have != nil {
			delete(t.keys, op.Key)
			t.changed = true
		}
		return nil, nil
	}
	return t.read(op, have)
}

func (t *transaction) lock(op kvOp, have *Entry) ([]*Entry, error) {
	e := op.Entry
	if op.Verb == "unlock" {
		if have == nil || have.Session != op.Session || op.Session == "" {
			return nil, fmt.Errorf("failed to unlock key %q, lock isn't held, or is held by another session", op.Key)
		}
		e.Session, e.LockIndex = "", have.LockIndex
		return []*Entry{t.set(e)}, nil
	}
	if t.sessions[op.Session] == nil {
		return nil, fmt.Errorf("invalid session %q", op.Session)
	}
	switch {
	case have == nil:
		e.LockIndex = 1
	case have.Session == op.Session:
		e.LockIndex = have.LockIndex
	case have.Session != "":
		return nil, fmt.Errorf("failed to lock key %q, lock is already held", op.Key)
	default:
		e.LockIndex = have.LockIndex + 1
	}
	return []*Entry{t.set(e)}, nil
}

func (t *transaction) read(op kvOp, have *Entry) ([]*Entry, error) {
	switch op.Verb {
	case "get":
		if have == nil {
			return nil, fmt.Errorf("key %q doesn't exist", op.Key)
		}
		return t.readable(have), nil
	case "get-tree":
		return t.treeOf(t.keys, op.Key), nil
	case "check-session":
		switch {
		case have == nil:
			return nil, fmt.Errorf("failed to check session, key %q doesn't exist", op.Key)
		case have.Session != op.Session:
			return nil, fmt.Errorf("failed session check for key %q, current session %q != %q", op.Key, have.Session, op.Session)
		}
		return []*Entry{bare(have)}, nil
	case "check-index":
		switch {
		case have == nil:
			return nil, fmt.Errorf("failed to check index, key %q doesn't exist", op.Key)
		case have.ModifyIndex != op.Index:
			return nil, fmt.Errorf("failed index check for key %q, current modify index %d != %d", op.Key, have.ModifyIndex, op.Index)
		}
		return []*Entry{bare(have)}, nil
	case "check-not-exists":
		if have != nil {
			return nil, fmt.Errorf("key %q exists", op.Key)
		}
		return nil, nil
	}
	return nil, fmt.Errorf("unknown KV verb %q", op.Verb)
}

// readable is e if it may be read.
func (t *transaction) readable(e *Entry) []*Entry {
	if t.allow(keyRules, "key", "read", e.Key) != nil {
		return nil
	}
	return []*Entry{e}
}
