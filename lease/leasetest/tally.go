package leasetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cloudlease/cloudlease/lease"
)

// tally counts what happened in simulations.
type tally struct {
	mu     sync.Mutex
	seeds  int
	faults map[string]int // by kind: requests hit, or clocks turned
	calls  map[string]int // of stores, by operation
	ends   map[string]int // of leases and of guarded writes
}

func newTally() *tally {
	return &tally{faults: map[string]int{}, calls: map[string]int{}, ends: map[string]int{}}
}

func (s *tally) count(fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[fault]++
}

func (s *tally) fault(x *Fault) {
	n := x.Fired()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[string(x.Kind)] += n
}

func (s *tally) wrote(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["put"]++
	switch {
	case err == nil:
		s.ends["written"]++
	case errors.Is(err, lease.ErrStale):
		s.ends["stale write refused"]++
	}
}

func (s *tally) wroteChecked(passed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["checked write"]++
	if !passed {
		s.ends["checked write refused"]++
	}
}

var endings = []lease.EventKind{lease.Acquired, lease.Lost, lease.Released, lease.Abandoned}

// add takes what the hosts of one run have seen.
func (s *tally) add(x *simulation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds++
	for _, h := range x.hosts {
		h.mu.Lock()
		for _, c := range h.calls {
			s.calls[c.op]++
		}
		for _, ev := range h.events {
			if slices.Contains(endings, ev.Kind) {
				s.ends[string(ev.Kind)]++
			}
		}
		h.mu.Unlock()
	}
}

func (s *tally) report(x Simulation) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0
	for _, n := range s.calls {
		total += n
	}
	return fmt.Sprintf("%d seeds from %d, %v each: %d checked operations\n  calls:  %s\n  ends:   %s\n  faults: %s",
		s.seeds, x.First, x.For, total, table(s.calls), table(s.ends), table(s.faults))
}

func table(counts map[string]int) string {
	var cells []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		cells = append(cells, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(cells, ", ")
}

// requireEveryFault fails t for a kind of fault that hit nothing: such a simulation would prove less than it says.
func (s *tally) requireEveryFault(t testing.TB) {
	t.Helper()
	kinds := []string{"wall clock is set", "wall clock stands still", "monotonic clock stands still"}
	for _, k := range simulatedKinds {
		kinds = append(kinds, string(k))
	}
	for _, k := range kinds {
		if s.faults[k] == 0 {
			t.Errorf("the fault %q never hit anything", k)
		}
	}
	for _, k := range []string{string(lease.Lost), string(lease.Abandoned), "stale write refused"} {
		if s.ends[k] == 0 {
			t.Errorf("%q never came", k)
		}
	}
}
