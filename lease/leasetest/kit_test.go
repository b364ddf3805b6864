package leasetest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// verdict is a testing.TB that keeps what it is told.
type verdict struct {
	testing.TB
	mu     sync.Mutex
	errors []string
}

func (v *verdict) Helper() {}

func (v *verdict) Logf(string, ...any) {}

func (v *verdict) Error(args ...any) { v.add(fmt.Sprint(args...)) }

func (v *verdict) Errorf(format string, args ...any) { v.add(fmt.Sprintf(format, args...)) }

func (v *verdict) add(s string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.errors = append(v.errors, s)
}

// all are the errors so far, and there are none afterwards.
func (v *verdict) all() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := strings.Join(v.errors, "\n")
	v.errors = nil
	return all
}

// plain is a service in memory behind the faults of one host.
func plain(f *leasetest.Faults) *memlease.Store {
	return memlease.NewService().Store(&memlease.Options{Intercept: f.Intercept})
}

// scripted is a guard that answers as it is told.
type scripted struct {
	fence.Guard
	put func(token lease.Token) error
	get fence.Entry
}
