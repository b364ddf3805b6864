package leasetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

// Simulation says how a store is tried by chance. The zero value of every field is its default.
type Simulation struct {
	First uint64        // the first seed, default 1
	Seeds int           // how many, default 10
	For   time.Duration // virtual time of each, default 30 TTL
	Hosts int           // default 4
	Names int           // how many locks they contend for, default 2
}

// SeedsVariable names the environment variable that sets the seeds of every Simulate, as COUNT or FIRST:COUNT.
const SeedsVariable = "CLOUDLEASE_SEEDS"

// Simulate lets hosts contend for a few locks in virtual time while the network, the clocks and the hosts themselves fail by
// chance, while operators break locks and runs of jobs crash, and checks what must always hold: no two holders trust at one
// instant, trust begins before a request is sent, tokens grow, guarded data, values and marks never go back, an occurrence that
// may run once at most does so, no store tells a loss that was none or an older state than one it told before, every error has one
// class, nothing secret is shown, what ended in doubt is given back, and at the end, when all is well again, every lock can be had
// within the take-over bound.
//
// Half-way everything comes to rest: the records of all locks are deleted, made again, and replaced by older copies (Restorer), an
// empty service answers for a moment (Replaced), and one is held from a time when the service's clock was an hour ahead (Timed). h
// must be Virtual.
//
// One seed is one run: it decides what is done, what fails, and every random number that the code under test draws from
// crypto/rand. A run that fails is repeated by its seed.
//
// A host's two clocks are never both wrong, because then no trust could be measured.
func Simulate(t *testing.T, h Harness, s Simulation) {
	t.Helper()
	h = h.withDefaults()
	s = s.withDefaults(t, h)
	sum := newTally()
	for seed := s.First; seed < s.First+uint64(s.Seeds) && !t.Failed(); seed++ { //nolint:gosec // a small count
		simulateSeed(t, h, s, seed, sum)
	}
	t.Log(sum.report(s))
	if s.Seeds >= allFaultsFrom && !t.Failed() {
		sum.requireEveryFault(t)
	}
}

func simulateSeed(t *testing.T, h Harness, s Simulation, seed uint64, sum *tally) {
	t.Helper()
	over := false
	defer func() {
		if t.Failed() || !over { // a bubble that is left with goroutines panics
			t.Logf("seed %d has failed; repeat it with %s=%d:1 go test -run '^%s$'", seed, SeedsVariable, seed, t.Name())
		}
	}()
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, func(t *testing.T) { simulate(newEnv(t, h), s, seed, sum) })
	over = true
}

// allFaultsFrom is the number of seeds from which on every kind of fault must have hit something.
const allFaultsFrom = 10

func (s Simulation) withDefaults(t *testing.T, h Harness) Simulation {
	t.Helper()
	s.First = cmp.Or(s.First, 1)
	s.Seeds = cmp.Or(s.Seeds, 10)
	s.For = cmp.Or(s.For, 30*h.TTL)
	s.Hosts = cmp.Or(s.Hosts, 4)
	s.Names = cmp.Or(s.Names, 2)
	text := os.Getenv(SeedsVariable)
	if text == "" {
		return s
	}
	if !strings.Contains(text, ":") {
		text = "1:" + text
	}
	if _, err := fmt.Sscanf(text, "%d:%d", &s.First, &s.Seeds); err != nil || s.Seeds < 1 {
		t.Fatalf("%s=%q is neither COUNT nor FIRST:COUNT", SeedsVariable, os.Getenv(SeedsVariable))
	}
	return s
}

// simulation is one seed.
type simulation struct {
	*env
	Simulation
	seed uint64
	sum  *tally

	mu    sync.Mutex
	extra int // hosts that took the place of crashed ones
}

func simulate(e *env, s Simulation, seed uint64, sum *tally) {
	e.Helper()
	x := &simulation{env: e, Simulation: s, seed: seed, sum: sum}
	e.books = newBooks(e)
	e.books.eye = e.coldHost("eye")
	var hosts []*host
	for i := range s.Hosts {
		hosts = append(hosts, e.coldHost(fmt.Sprint("h", i)))
	}
	for phase := range 2 {
		hosts = x.storm(phase, hosts)
		for _, h := range x.hosts {
			h.faults.Settle()
		}
		time.Sleep(e.takeover()) // whoever was cut off has lost what it had
		x.requireProgress(phase)
		if phase == 0 {
			x.deleteAll()
			x.remakeAll()
			x.restoreAll()
			x.replaceService()
			x.holdFromTheFuture()
		}
	}
	sum.add(x)
	for _, h := range x.hosts {
		h.faults.forgetIdle() // a rule of chance need not hit anything
	}
}

// storm lets every host work in bad weather for half of the time. It returns the hosts that are still alive.
func (x *simulation) storm(phase int, hosts []*host) []*host {
	x.Helper()
	operator := x.coldHost(fmt.Sprint("operator ", phase))
	var wg sync.WaitGroup
	alive := make([]*host, len(hosts))
	for i, h := range hosts {
		wg.Go(func() {
			w := &worker{simulation: x, host: h, rand: x.random(phase, i)}
			time.Sleep(w.within(time.Second)) // nothing begins or ends at one instant: the order would be the scheduler's
			ctx, cancel := context.WithTimeout(x.Context(), x.For/2-w.within(time.Second))
			defer cancel()
			w.work(ctx)
			alive[i] = w.host
		})
	}
	operating, cancel := context.WithTimeout(x.Context(), x.For/2-2*x.TTL)
	defer cancel()
	wg.Go(func() { x.operate(operating, operator, x.random(phase, x.Hosts)) })
	wg.Wait()
	return alive
}

// random is a source of its own for each part of a run, so that what one does decides nothing for another.
func (x *simulation) random(phase, part int) *rand.Rand {
	return rand.New(rand.NewPCG(x.seed, uint64(phase)<<32|uint64(part))) //nolint:gosec // repeatable on purpose
}

func (x *simulation) name(i int) string { return fmt.Sprintf("lock-%d", i) }

// requireProgress wants every lock to be had by a host to which nothing bad happens.
func (x *simulation) requireProgress(phase int) {
	x.Helper()
	h := x.host(fmt.Sprint("healthy ", phase))
	c := h.client()
	for i := range x.Names {
		ctx, cancel := context.WithTimeout(x.Context(), x.takeover())
		l, err := c.Acquire(ctx, x.name(i))
		cancel()
		if err != nil {
			x.Errorf("%q could not be had when all was well again: %v", x.name(i), err)
			continue
		}
		x.history.Watch(l)
		x.history.Release(l.Name(), l.Token())
		if err := l.Release(x.Context()); err != nil {
			x.Errorf("release %q when all is well: %v", x.name(i), err)
		}
	}
	for i := range jobs {
		name, _ := jobName(i)
		h.free(h.take(name))
	}
}

// replace gives a crashed host's place to a new one.
func (x *simulation) replace() *host {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.extra++
	return x.coldHost(fmt.Sprintf("h%d", x.Hosts+x.extra-1))
}
