//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/e2e/fakelambda"
	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
)

// lambdaFaults are what is done to an environment while an occurrence is delivered to it.
var lambdaFaults = []string{
	kill, "freeze", string(proxy.DelayBefore), string(proxy.DelayAfter), string(proxy.DropAnswer), string(proxy.Fail),
	string(proxy.Throttle), string(proxy.BlackHole), string(proxy.Reset),
}

// maxDeliveries is how often an occurrence is delivered to one environment, which a platform would do at most: afterwards
// it counts as lost.
const maxDeliveries = 20

// play delivers all occurrences, one after another, each to several environments at once.
func (l *lambdas) play(ctx context.Context) error {
	for n := range l.Occurrences {
		at, key := occurrence(n)
		envs := slices.Clone(l.envs)
		l.rand.Shuffle(len(envs), func(i, j int) { envs[i], envs[j] = envs[j], envs[i] })
		envs = envs[:2+l.rand.IntN(len(envs)-1)]
		var working sync.WaitGroup
		delivered := make(chan struct{}) // to the first of them
		if kind := l.fault(l.Occurrences - n); kind != "" {
			l.mu.Lock()
			l.faulty[key] = true
			l.mu.Unlock()
			when, length := time.Duration(l.rand.Int64N(int64(250*time.Millisecond))), time.Duration(l.rand.Int64N(int64(functionTTL)))
			working.Go(func() {
				if l.trouble(ctx, envs[0], kind, when, length, delivered) {
					l.owed = slices.DeleteFunc(l.owed, func(k string) bool { return k == kind })
				}
			})
		}
		working.Go(func() {
			defer close(delivered)
			l.deliver(ctx, envs[0], at, key)
		})
		for _, e := range envs[1:] {
			working.Go(func() { l.deliver(ctx, e, at, key) })
		}
		working.Wait()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// fault is what is done during an occurrence with so many left, or "": by chance, and towards the end what has not hit anything yet.
func (l *lambdas) fault(left int) string {
	due := left <= 2*len(l.owed)
	if chance := l.rand.IntN(4) == 0; !chance && !due {
		return ""
	}
	if due {
		return l.owed[left%len(l.owed)]
	}
	if len(l.bag) == 0 {
		l.bag = slices.Clone(lambdaFaults)
		l.rand.Shuffle(len(l.bag), func(i, j int) { l.bag[i], l.bag[j] = l.bag[j], l.bag[i] })
	}
	kind := l.bag[0]
	l.bag = l.bag[1:]
	return kind
}

// trouble does one thing to an environment, and tells whether it hit anything. What concerns requests goes on until it hits one,
// or until there are none any more.
func (l *lambdas) trouble(
	ctx context.Context, e *environment, kind string, when, length time.Duration, delivered <-chan struct{},
) (hit bool) {
	switch kind {
	case kill:
		rest(ctx, when)
		if err := e.Kill(); err != nil {
			return false // none was running
		}
		l.count(kill)
		return true
	case "freeze":
		rest(ctx, when)
		if err := e.Pause(); err != nil {
			return false
		}
		l.count("freeze")
		rest(ctx, functionTTL+length)
		if err := e.Resume(); err != nil && !errors.Is(err, fakelambda.ErrNoProcess) {
			l.found("%v", err)
		}
		return true
	}
	rule := e.proxy.Add(proxy.Rule{Kind: proxy.Kind(kind), Chance: 0.7, Delay: when + length/2})
	rest(ctx, when+length/2)
	for over := false; rule.Hits() == 0 && !over; {
		select {
		case <-delivered:
			over = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	return rule.Stop() > 0
}

// deliver delivers an occurrence until it is answered well, as a platform does.
func (l *lambdas) deliver(ctx context.Context, e *environment, at time.Time, key string) {
	payload := fmt.Appendf(nil, `{"time":%q}`, at.Format(time.RFC3339))
	for range maxDeliveries {
		res, err := e.Invoke(ctx, fakelambda.Invocation{Payload: payload})
		if err != nil {
			if ctx.Err() == nil {
				l.found("deliver %s: %v", key, err)
			}
			return
		}
		l.count("deliveries")
		outcome := l.outcome(ctx, e, res)
		l.count("outcome " + outcome)
		if outcome == "ran" {
			l.mu.Lock()
			l.ran[key]++
			l.mu.Unlock()
		}
		if res.ErrorType == "" {
			if outcome != "ran" && outcome != "already-done" {
				l.found("%s was answered well with outcome %q, which loses it", key, outcome)
			}
			return
		}
		rest(ctx, 200*time.Millisecond)
	}
	l.found("%s was not done in %d deliveries to one environment", key, maxDeliveries)
}

// outcome is how a delivery ended, as the function says in its log; a killed one says nothing.
func (l *lambdas) outcome(ctx context.Context, e *environment, res fakelambda.Result) string {
	for wait := time.Duration(0); wait < 10*time.Second; wait += 10 * time.Millisecond {
		lines := e.Lines()
		for _, text := range slices.Backward(lines) {
			var line struct {
				Msg     string
				Outcome string
			}
			if strings.Contains(text, res.ID) && json.Unmarshal([]byte(text), &line) == nil && line.Msg == "singleton delivery" {
				return line.Outcome
			}
		}
		if res.ErrorType == fakelambda.ErrorExit || res.ErrorType == fakelambda.ErrorTimeout || !rest(ctx, 10*time.Millisecond) {
			return res.ErrorType
		}
	}
	return "untold"
}
