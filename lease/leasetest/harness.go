package leasetest

import (
	"cmp"
	"context"
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

	// Remade is how soon after its creation a record can be deleted and made again without a token that does not grow.
	// Simulate tries it. Default TTL.
	Remade time.Duration

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

// Restorer is implemented by backends of stores whose tokens grow over a restore from an older copy as well.
type Restorer interface {
	// Copy copies the record of a lock that is free. The result puts it back as it was.
	Copy(t *testing.T, name string) (restore func())
}

// Timed is implemented by backends whose service tells its time.
type Timed interface {
	// SetTime makes the service tell a time that is off by d from now on.
	SetTime(d time.Duration)
}

// Replaced is implemented by backends of stores that notice when their service has lost its data.
type Replaced interface {
	// Replace lets f run while an empty service answers in the place of this one.
	Replace(f func())
}

// Tidy is implemented by backends whose stores leave nothing of their own behind when they are closed, such as sessions.
type Tidy interface {
	// Leftovers are what stores have left.
	Leftovers() []string
}

// Checked is implemented by backends of stores that let users make writes of their own depend on a lease.
type Checked interface {
	// Write makes such a write through the host's store s. passed is false if it was refused because l is over, as it must be
	// once another has the lock. atRelease says that it is refused from the release on.
	Write(h Host, s lease.Store) (write func(ctx context.Context, l *lease.Lease) (passed bool, err error), atRelease bool)
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
	h.Remade = cmp.Or(h.Remade, h.TTL)
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
		clockCases(), pauseCases(), nameCases(), markCases(), recordCases(), operatorCases(), lookCases(),
	)
}
