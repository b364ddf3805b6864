package leasetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// GuardHarness says how to test a guard.
type GuardHarness struct {
	// New opens an empty storage for one subtest, inside the subtest's bubble if Virtual is set.
	New func(t *testing.T) Guarded
	// Virtual runs every subtest in a testing/synctest bubble. Without it they run in parallel and in real time.
	Virtual bool
	// Rounds of the repeated tests, default 20 if Virtual and 3 otherwise.
	Rounds int
}

// TestGuard checks that a guard keeps its contract.
func TestGuard(t *testing.T, h GuardHarness) {
	t.Helper()
	rounds := 3
	if h.Virtual {
		rounds = 20
	}
	h.Rounds = cmp.Or(h.Rounds, rounds)
	for _, c := range guardCases() {
		subtest(t, c.name, h.Virtual, func(t *testing.T) { c.run(newGuardEnv(t, h)) })
	}
}

type guardCase struct {
	name string
	run  func(*guardEnv)
}

// guardEnv is what a subtest of TestGuard works with.
type guardEnv struct {
	*testing.T
	GuardHarness
	backend Guarded
	history *History
	faults  []*Faults
}

func newGuardEnv(t *testing.T, h GuardHarness) *guardEnv {
	t.Helper()
	e := &guardEnv{T: t, GuardHarness: h, history: NewHistory()}
	t.Cleanup(func() {
		for _, f := range e.faults {
			f.CheckFired(t)
		}
		e.history.Check(t)
	})
	e.backend = h.New(t)
	t.Cleanup(func() {
		for _, f := range e.faults {
			f.Heal()
			f.Settle()
		}
	})
	return e
}

// guard opens the storage from another host.
func (e *guardEnv) guard(host string) (fence.Guard, *Faults) {
	e.Helper()
	f := NewFaults()
	e.faults = append(e.faults, f)
	g := e.backend.Guard(e.T, Host{Name: host, Clock: NewClock().Now, Faults: f})
	return e.history.Guard(AnnotateGuard(g)), f
}

// plainGuard is a guard in memory for the suites of stores whose backend has none.
type plainGuard struct {
	faults *Faults
	data   *plainData
}

type plainData struct {
	mu      sync.Mutex
	entries map[string]fence.Entry
}

func newPlainData() *plainData { return &plainData{entries: map[string]fence.Entry{}} }

// Put implements fence.Guard.
func (g plainGuard) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	var stale *fence.StaleError
	err := g.faults.Intercept(ctx, "put", func() error {
		g.data.mu.Lock()
		defer g.data.mu.Unlock()
		have := g.data.entries[key]
		if !fence.Admits(have, token, holder) {
			return &fence.StaleError{Key: key, Token: token, Seen: have.Token, Holder: have.Holder}
		}
		g.data.entries[key] = fence.Entry{Value: bytes.Clone(value), Token: token, Holder: holder}
		return nil
	})
	if err == nil || errors.As(err, &stale) {
		return err
	}
	return &lease.Error{Op: "put", Name: key, Class: lease.ErrInDoubt, Err: err}
}

// Get implements fence.Guard.
func (g plainGuard) Get(_ context.Context, key string) (fence.Entry, error) {
	g.data.mu.Lock()
	defer g.data.mu.Unlock()
	e := g.data.entries[key]
	e.Value = bytes.Clone(e.Value)
	return e, nil
}
