package leasetest

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// Harness says how to test a store.
type Harness struct {
	// New opens a service of its own for one subtest: nothing that another subtest locks is seen there. It is called
	// inside the subtest's bubble if Virtual is set. It closes what it opened with t.Cleanup.
	New func(t *testing.T) Backend

	// Virtual runs every subtest in a testing/synctest bubble. The service must then be in this process and tell the
	// bubble's time. Without it the subtests run in parallel and in real time, and those that take hours or turn the
	// clocks of hosts against that of the service are not run.
	Virtual bool

	// TTL of the leases under test, default 6 s. Waits are multiples of it.
	TTL time.Duration

	// Rounds of the repeated tests, default 100 if Virtual and 3 otherwise.
	Rounds int

	// Slack is how long the service may keep a dead lease beyond the 2*TTL+3 s after its last renewal that every store
	// keeps to, such as a lock-delay. Default 0.
	Slack time.Duration

	// PerSecond is how many requests one host that holds or waits sends in a second at most. Default 5.
	PerSecond int

	// Anonymous says that a refusal by the service does not tell the holder nor the token.
	Anonymous bool
}

// Backend is one lock service.
type Backend interface {
	// Store makes a store on the service for one host. The suite closes it.
	Store(t *testing.T, h Host) lease.Store
	// Delete removes the record of a lock behind the library's back, as an operator would. The suite lets one TTL pass
	// after a grant before it does so.
	Delete(t *testing.T, name string)
}

// Guarded is implemented by backends that have a guard. For TestGuard it is the whole backend.
type Guarded interface {
	Guard(t *testing.T, h Host) fence.Guard
}

// Host is a machine that uses the service.
type Host struct {
	Name   string
	Clock  lease.Clock // what the store takes for the clocks of this machine
	Faults *Faults     // what stands between this machine and the service
}

// TestStore checks that a store keeps its contract.
func TestStore(t *testing.T, h Harness) {
	t.Helper()
	h = h.withDefaults()
	for _, c := range storeCases() {
		if c.virtual && !h.Virtual {
			continue
		}
		subtest(t, c.name, h.Virtual, func(t *testing.T) { c.run(newEnv(t, h)) })
	}
}

func (h Harness) withDefaults() Harness {
	h.TTL = cmp.Or(h.TTL, 6*time.Second)
	rounds := 3
	if h.Virtual {
		rounds = 100
	}
	h.Rounds = cmp.Or(h.Rounds, rounds)
	h.PerSecond = cmp.Or(h.PerSecond, 5)
	return h
}

// subtest opens the bubble inside of the subtest, because a subtest cannot be started inside a bubble.
func subtest(t *testing.T, name string, virtual bool, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if virtual {
			synctest.Test(t, f)
			return
		}
		t.Parallel()
		f(t)
	})
}

// storeCase is one subtest of TestStore.
type storeCase struct {
	name    string
	virtual bool // it takes hours, or sets hosts' clocks against the service's
	run     func(*env)
}

// storeCases are the subtests, simple ones first.
func storeCases() []storeCase {
	return slices.Concat(
		basicCases(), ownerCases(), answerCases(), clientCases(), keepingCases(), unansweredCases(),
		clockCases(), pauseCases(), nameCases(), markCases(), recordCases(), operatorCases(),
	)
}
