package memlease_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend is a service in memory for the suites.
type backend struct{ s *memlease.Service }

func newBackend(*testing.T) backend { return backend{memlease.NewService()} }

func (b backend) store(h leasetest.Host) *memlease.Store {
	return b.s.Store(&memlease.Options{Clock: h.Clock, Intercept: h.Faults.Intercept})
}

func (b backend) Store(_ *testing.T, h leasetest.Host) lease.Store { return b.store(h) }

func (b backend) Guard(_ *testing.T, h leasetest.Host) fence.Guard { return b.store(h).Guard() }

func (b backend) Delete(_ *testing.T, name string) { b.s.Delete(name) }

func TestStore(t *testing.T) {
	leasetest.TestStore(t, leasetest.Harness{
		New:     func(t *testing.T) leasetest.Backend { return newBackend(t) },
		Virtual: true,
	})
}

func TestGuard(t *testing.T) {
	leasetest.TestGuard(t, leasetest.GuardHarness{
		New:     func(t *testing.T) leasetest.Guarded { return newBackend(t) },
		Virtual: true,
	})
}
