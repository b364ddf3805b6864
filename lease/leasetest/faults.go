package leasetest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	DropRequest Kind = "drop request" // it never arrives; the caller sees a broken connection
	DropAnswer  Kind = "drop answer"  // the effect happens; the caller sees a broken connection
	DelayBefore Kind = "delay before" // the request is under way for Rule.Delay, also when its caller has given up
	DelayAfter  Kind = "delay after"  // the effect happens at once, the answer is under way for Rule.Delay
	Duplicate   Kind = "duplicate"    // it arrives, is answered, and arrives once more after Rule.Delay
	Fail        Kind = "fail"         // answered with Rule.Failure, and not done
	FailAfter   Kind = "fail after"   // done, and answered with Rule.Failure
	BlackHole   Kind = "black hole"   // swallowed: the caller hangs until its context ends
)

// Failure is what a service answers instead of doing what it is asked.
type Failure string

// The failures that every service has in some form.
const (
	Throttled   Failure = "throttled"    // too many requests
	Unavailable Failure = "unavailable"  // 503
	Internal    Failure = "server error" // 500
	Denied      Failure = "denied"       // 403 or what the service says for it
)

// Rule says which requests fail, and how. Requests are counted from the rule's own start.
type Rule struct {
	Op      string // the operation, see Annotate; empty: any
	Kind    Kind
	Nth     int // 0: no condition; n: only the nth request of Op
	Every   int // 0: no condition; n: every nth request of Op
	Delay   time.Duration
	Failure Failure
}

// Fault is a rule in force.
type Fault struct {
	Rule
	of          *Faults
	seen, fired int
	stopped     bool
}

// Stop ends the rule. Requests that it holds or swallowed stay as they are.
func (x *Fault) Stop() {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	x.stopped = true
}

// Fired tells how many requests the rule has hit.
func (x *Fault) Fired() int {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	return x.fired
}

// Call is one request that a host sent.
type Call struct {
	Op   string
	Name string    // the lock, record or key, where the call was annotated with it
	Sent time.Time // when the host sent it
	Kind Kind      // the fault that hit it, or empty
}

// Faults stand between one host and its service. Make them with NewFaults, give them to the store through Intercept
// or RoundTripper.
type Faults struct {
	mu     sync.Mutex
	rules  []*Fault
	calls  []*Call
	flying sync.WaitGroup
	number int    // of the host in a simulation, which puts what happens at one instant in an order that is always the same; 0: none
	onSend func() // called for every request before it is sent; nil: nobody asks
}

// NewFaults makes a faultless network.
func NewFaults() *Faults { return &Faults{} }

// Add puts r in force. Where several rules match one request, the first one added hits it.
func (f *Faults) Add(r Rule) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := &Fault{Rule: r, of: f}
	f.rules = append(f.rules, x)
	return x
}

// Remove ends a rule and forgets it, so that CheckFired does not ask for it.
func (f *Faults) Remove(x *Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = slices.DeleteFunc(f.rules, func(y *Fault) bool { return x == y })
}

// forgetIdle removes the rules that hit nothing.
func (f *Faults) forgetIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = slices.DeleteFunc(f.rules, func(x *Fault) bool { return x.fired == 0 })
}

// Heal stops all rules.
func (f *Faults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.rules {
		x.stopped = true
	}
}

// Settle waits until every request that is under way has arrived.
func (f *Faults) Settle() { f.flying.Wait() }

// CheckFired fails t for every rule that never hit a request: such a test would prove nothing.
func (f *Faults) CheckFired(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.rules {
		if x.fired == 0 {
			t.Errorf("the fault %q on %q never hit a request (%d seen)", x.Kind, x.Op, x.seen)
		}
	}
}

// Calls are the requests sent so far of one operation, or of all if op is empty.
func (f *Faults) Calls(op string) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var calls []Call
	for _, c := range f.calls {
		if op == "" || c.Op == op {
			calls = append(calls, *c)
		}
	}
	return calls
}

// begin records a request and finds the rule that hits it.
func (f *Faults) begin(ctx context.Context, op string) *Rule {
	if f.onSend != nil {
		f.onSend()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &Call{Op: op, Name: annotationOf(ctx).name, Sent: time.Now()}
	f.calls = append(f.calls, c)
	var hit *Fault
	for _, x := range f.rules {
		if x.stopped || x.Op != "" && x.Op != op {
			continue
		}
		x.seen++
		if hit == nil && (x.Nth == 0 || x.seen == x.Nth) && (x.Every == 0 || x.seen%x.Every == 0) {
			hit = x
		}
	}
	if hit == nil {
		return nil
	}
	hit.fired++
	c.Kind = hit.Kind
	return &hit.Rule
}

// broken is what a caller sees of a connection that was cut.
func broken() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

// givenUp is what a caller sees whose context ended first.
func givenUp(ctx context.Context) error {
	return fmt.Errorf("request given up: %w", context.Cause(ctx))
}

// message is a request on its way: how it takes effect, how it is refused, and what becomes of an answer nobody waits for.
type message[T any] struct {
	deliver func(context.Context) (T, error)
	refuse  func(Failure) (T, error)
	discard func(T)
}

// send sends m for a host, through its faults.
func send[T any](ctx context.Context, f *Faults, op string, m message[T]) (T, error) {
	rule := f.begin(ctx, op)
	if rule == nil {
		return m.deliver(ctx)
	}
	var none T
	switch rule.Kind {
	case DropRequest:
		return none, broken()
	case DropAnswer, FailAfter:
		if v, err := await(ctx, f, m, 0, 0); ctx.Err() != nil {
			return none, givenUp(ctx) // also if the answer came at that instant
		} else if err == nil {
			m.discard(v)
		}
		if rule.Kind == DropAnswer {
			return none, broken()
		}
		return m.refuse(rule.Failure)
	case DelayBefore:
		return await(ctx, f, m, rule.Delay, 0)
	case DelayAfter:
		return await(ctx, f, m, 0, rule.Delay)
	case Duplicate:
		f.flying.Go(func() {
			time.Sleep(rule.Delay)
			if v, err := m.deliver(context.WithoutCancel(ctx)); err == nil {
				m.discard(v)
			}
		})
		return m.deliver(ctx)
	case Fail:
		return m.refuse(rule.Failure)
	case BlackHole:
		<-ctx.Done()
		return none, givenUp(ctx)
	}
	return none, fmt.Errorf("leasetest: %q is no kind of fault", rule.Kind)
}

// await delivers m after one delay and waits for its answer with another. m arrives whether or not its caller still waits:
// it is on the wire.
func await[T any](ctx context.Context, f *Faults, m message[T], before, after time.Duration) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer)
	f.flying.Go(func() {
		time.Sleep(before)
		v, err := m.deliver(context.WithoutCancel(ctx))
		time.Sleep(after)
		select {
		case answers <- answer{v, err}:
		case <-ctx.Done():
			if err == nil {
				m.discard(v)
			}
		}
	})
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, givenUp(ctx)
	}
}
