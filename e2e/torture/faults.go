//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
)

// The faults that are not the proxy's.
const (
	pause       = "pause"         // SIGSTOP, then SIGCONT
	suspend     = "suspend"       // the same, and the monotonic clock stands still meanwhile
	kill        = "kill"          // SIGKILL, then a new process
	terminate   = "terminate"     // SIGTERM, then a new process
	wallForward = "wall forward"  // the wall clock is set forward
	wallBack    = "wall back"     // or back
	monoFrozen  = "mono frozen"   // the monotonic clock stands still for a while
	drift       = "drift"         // both clocks run wrong by up to 150 ppm
	engineKill  = "engine killed" // SIGKILL, then a start on the same data
)

// sceneBeyond goes beyond what trust and progress are promised for: Dates that are wrong by up to ten seconds, clocks that run
// wrong by up to 15 %, and a monotonic clock that stands still in a lease whose wall clock is set back.
const sceneBeyond = "beyond"

// processFaults are what can be done to a worker's process.
var processFaults = []string{pause, suspend, kill, terminate, wallForward, wallBack, monoFrozen, drift}

// clockFaults are those that set clocks wrong.
var clockFaults = map[string]bool{suspend: true, wallForward: true, wallBack: true, monoFrozen: true}

// kinds are all faults that this campaign injects.
func (c *campaign) kinds() []string {
	kinds := append([]string(nil), processFaults...)
	for _, k := range c.service.Kinds() {
		kinds = append(kinds, string(k))
	}
	if c.service.Durable() {
		kinds = append(kinds, engineKill)
	}
	return kinds
}

// stream is a sequence of faults, one after another, that goes on beside others.
type stream struct {
	*campaign
	rand *rand.Rand
	ttl  time.Duration
	bag  []string
}

func (c *campaign) stream(n uint64) *stream {
	return &stream{campaign: c, rand: rand.New(rand.NewPCG(c.Seed, n)), ttl: c.service.TTL()} //nolint:gosec // it shall be repeatable
}

// unleash lets all streams run until ctx ends, and returns when everything they did is undone.
func (c *campaign) unleash(ctx context.Context) error {
	failed := make(chan error, 5)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	run := func(play func(context.Context) error) {
		running.Go(func() {
			if err := play(ctx); err != nil {
				failed <- err
				stop()
			}
		})
	}
	run(c.stream(1).network)
	run(c.stream(2).network)
	half := len(c.holders) / 2
	run(func(ctx context.Context) error { return c.stream(3).processes(ctx, c.holders[:half]) })
	run(func(ctx context.Context) error { return c.stream(4).processes(ctx, c.holders[half:]) })
	if c.service.Durable() {
		run(c.stream(5).engineCrashes)
	}
	running.Wait()
	close(failed)
	return <-failed // nil if there is none
}

// next draws a kind: all come, in a new order each time around.
func (s *stream) next(kinds []string) string {
	if len(s.bag) == 0 {
		s.bag = append(s.bag, kinds...)
		s.rand.Shuffle(len(s.bag), func(i, j int) { s.bag[i], s.bag[j] = s.bag[j], s.bag[i] })
	}
	kind := s.bag[0]
	s.bag = s.bag[1:]
	return kind
}

// between is a random time.
func (s *stream) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rand.Int64N(int64(most-least)))
}

// obstacle writes down what stood in a worker's way; "" means all workers.
func (c *campaign) obstacle(name, kind string, from, until time.Duration) {
	c.log.Add(history.Event{Kind: history.Obstacle, Worker: name, At: from, Until: until, Fault: kind})
}

// longestDelay is how long the proxy holds a request at most: a late effect that does not outlive the next lease by much.
func (c *campaign) longestDelay() time.Duration { return c.service.TTL() }

// hitOnly are the operations that a rule hits; "" are all.
var hitOnly = []string{"", "", "", "locks.", "guarded."}

// network puts one rule after another in force at one worker's proxy, or at all.
func (s *stream) network(ctx context.Context) error {
	var kinds []string
	for _, k := range s.service.Kinds() {
		kinds = append(kinds, string(k))
	}
	for rest(ctx, s.between(s.ttl/10, s.ttl/2)) {
		r := proxy.Rule{Kind: proxy.Kind(s.next(kinds)), Chance: 0.3 + 0.7*s.rand.Float64()}
		r.Delay = s.between(50*time.Millisecond, s.longestDelay())
		r.Shift = s.between(-500*time.Millisecond, 500*time.Millisecond) // so that two front ends differ by a second at most
		if s.Scene == sceneBeyond {
			r.Shift *= 20
		}
		if op := s.rand.IntN(len(hitOnly)); r.Kind != proxy.Partition && r.Kind != proxy.StaleRead { // what is guarded is not read so
			r.Op = hitOnly[op]
		}
		victims := []*holder{s.holders[s.rand.IntN(len(s.holders))]}
		if s.rand.IntN(5) == 0 {
			victims = s.holders
		}
		if owed := s.unhit(kinds); len(owed) > 0 && history.Now()-s.began > s.For/2 { // what has missed so far comes first, and for all
			r.Kind, r.Op, r.Chance, victims = owed[s.rand.IntN(len(owed))], "", 1, s.holders
		}
		s.impose(ctx, r, victims, s.between(s.ttl/5, s.ttl))
	}
	return nil
}

// unhit are those of these kinds that have hit no request yet.
func (c *campaign) unhit(kinds []string) []proxy.Kind {
	hits := map[proxy.Kind]int{}
	for _, h := range c.holders {
		for kind, n := range h.proxy.Stats().Faults {
			hits[kind] += n
		}
	}
	var none []proxy.Kind
	for _, kind := range kinds {
		if hits[proxy.Kind(kind)] == 0 {
			none = append(none, proxy.Kind(kind))
		}
	}
	return none
}

// impose keeps a rule in force for d, longer if it has not hit anything by then.
func (s *stream) impose(ctx context.Context, r proxy.Rule, victims []*holder, d time.Duration) {
	from := history.Now()
	rules := make([]*proxy.Active, len(victims))
	for i, v := range victims {
		rules[i] = v.proxy.Add(r)
	}
	rest(ctx, d)
	missed := func() bool { return !slices.ContainsFunc(rules, func(a *proxy.Active) bool { return a.Hits() > 0 }) }
	for history.Now() < from+d+2*s.ttl && missed() && rest(ctx, 50*time.Millisecond) {
	}
	for i, v := range victims {
		rules[i].Stop()
		until := history.Now()
		switch r.Kind {
		case proxy.WrongDate, proxy.Duplicate:
			continue // nobody is kept from anything
		case proxy.DelayBefore, proxy.DelayAfter:
			until += r.Delay
		default:
		}
		s.obstacle(v.config.Name, string(r.Kind), from, until)
	}
}

// processes does one thing after another to one of these workers' processes or its clocks.
func (s *stream) processes(ctx context.Context, of []*holder) error {
	touched := map[*holder]time.Duration{} // when a worker's clocks were last touched
	for rest(ctx, s.between(s.ttl/10, s.ttl/2)) {
		v, kind := of[s.rand.IntN(len(of))], s.next(processFaults)
		if at, before := touched[v]; before && clockFaults[kind] && s.Scene != sceneBeyond {
			// A monotonic clock that stood still and a wall clock that is set back within one lease would both be wrong in
			// the same direction, which nothing can be built on.
			if !rest(ctx, at+2*s.ttl-history.Now()) {
				break
			}
		}
		if err := s.strike(ctx, v, kind); err != nil {
			return fmt.Errorf("%s of %s: %w", kind, v.config.Name, err)
		}
		if clockFaults[kind] {
			touched[v] = history.Now()
		}
		s.count(kind)
	}
	return nil
}

// strike does one thing to a worker, and undoes it.
func (s *stream) strike(ctx context.Context, v *holder, kind string) error {
	from := history.Now()
	defer func() {
		switch kind {
		case pause, suspend, kill, terminate:
			s.obstacle(v.config.Name, kind, from, history.Now())
		}
	}()
	switch kind {
	case pause:
		return s.stop(ctx, v)
	case suspend:
		if err := v.command("mono freeze"); err != nil {
			return err
		}
		return errors.Join(s.stop(ctx, v), v.command("mono run"))
	case kill:
		if err := v.end(syscall.SIGKILL, time.Minute); err != nil {
			return err
		}
		rest(ctx, s.between(0, s.ttl/2))
		return v.start()
	case terminate:
		if err := v.end(syscall.SIGTERM, 2*time.Minute); err != nil {
			return err
		}
		return v.start()
	case wallForward:
		return v.command("wall " + s.between(0, 20*s.ttl).String())
	case wallBack:
		return v.command("wall -" + s.between(0, 20*s.ttl).String())
	case drift:
		ppm := s.rand.IntN(300) - 150
		if s.Scene == sceneBeyond {
			ppm *= 1000
		}
		return v.command(fmt.Sprintf("drift %d", ppm))
	case monoFrozen:
		if err := v.command("mono freeze"); err != nil {
			return err
		}
		rest(ctx, s.between(s.ttl/2, 2*s.ttl))
		return v.command("mono run")
	}
	return fmt.Errorf("%q is no fault", kind)
}

// stop stops the process, often for longer than its lease lasts.
func (s *stream) stop(ctx context.Context, v *holder) error {
	if err := v.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	rest(ctx, s.between(s.ttl/5, 3*s.ttl))
	return v.signal(syscall.SIGCONT)
}

// engineCrashes kills the engine now and then and starts it on what it has left.
func (s *stream) engineCrashes(ctx context.Context) error {
	for rest(ctx, s.between(3*s.ttl, 8*s.ttl)) {
		err := s.crash(ctx, func() error {
			rest(ctx, s.between(0, s.ttl))
			return nil
		})
		if err != nil {
			return err
		}
		s.count(engineKill)
	}
	return nil
}

// crash kills the engine and starts it again at the same address; meanwhile something may be done to its data.
func (c *campaign) crash(ctx context.Context, meanwhile func() error) error {
	from := history.Now()
	if err := c.engine.Kill(); err != nil {
		return fmt.Errorf("kill the engine: %w", err)
	}
	if err := meanwhile(); err != nil {
		return err
	}
	engine, err := c.service.Start(context.WithoutCancel(ctx), c.dataDir(), c.port)
	if err != nil {
		return fmt.Errorf("start the engine again: %w", err)
	}
	c.engine = engine
	c.obstacle("", engineKill, from, history.Now())
	return nil
}
