//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cloudlease/cloudlease/e2e/fakelambda"
)

// process is one Lambda execution environment.
type process struct {
	name string
	env  *fakelambda.Env
	pid  int // once it has started
}

func newProcess(name, bootstrap string, config []string) (*process, error) {
	env, err := fakelambda.New(fakelambda.Options{
		Bootstrap: bootstrap, Env: config, Timeout: limit, Freeze: true, Stop: fakelambda.StopKill,
	})
	if err != nil {
		return nil, fmt.Errorf("process %s: %w", name, err)
	}
	return &process{name: name, env: env}, nil
}

// logLine is what the demonstration reads in the function's log.
type logLine struct {
	Msg       string `json:"msg"`
	Outcome   string `json:"outcome"`
	RequestID string `json:"request_id"`
}

// log yields the lines of the log so far.
func (p *process) log() iter.Seq[logLine] {
	return func(yield func(logLine) bool) {
		for _, text := range p.env.Lines() {
			var line logLine
			if json.Unmarshal([]byte(text), &line) == nil && !yield(line) {
				return
			}
		}
	}
}

// count is how often the process has logged msg.
func (p *process) count(msg string) int {
	n := 0
	for line := range p.log() {
		if line.Msg == msg {
			n++
		}
	}
	return n
}

// logDelay bounds how much later than its answer a function's log may come: it takes another way.
const logDelay = 30 * time.Second

// outcome is how a delivery ended, as the function says in its log.
func (p *process) outcome(ctx context.Context, requestID string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, logDelay, errSpoiled)
	defer cancel()
	for {
		for line := range p.log() {
			if line.Msg == "singleton delivery" && line.RequestID == requestID {
				return line.Outcome, nil
			}
		}
		if err := rest(ctx, 10*time.Millisecond); err != nil {
			return "", fmt.Errorf("wait for what process %s logs of delivery %s: %w", p.name, requestID, err)
		}
	}
}

// delivery is one event given to a process.
type delivery struct {
	to     *process
	day    string
	from   time.Time
	done   chan struct{}
	until  time.Time // this and what follows: valid once done is closed
	result fakelambda.Result
	err    error
}

// deliver gives the event of a day to a process and does not wait for its answer.
func (w *world) deliver(ctx context.Context, to *process, day string) *delivery {
	d := &delivery{to: to, day: day, from: time.Now(), done: make(chan struct{})}
	w.deliveries = append(w.deliveries, d)
	w.invoking.Go(func() {
		defer close(d.done)
		payload := fmt.Appendf(nil, `{"time":"%sT06:00:00Z"}`, day)
		d.result, d.err = to.env.Invoke(ctx, fakelambda.Invocation{Payload: payload})
		d.until = time.Now()
	})
	return d
}

// errSpoiled is what went wrong where nothing else says it.
var errSpoiled = errors.New("the demonstration did not go as planned")

// want waits for the answer and checks how the delivery ended. A run that did not end well has to be an error, so that the
// platform delivers it again, and all else has to be none.
func (d *delivery) want(ctx context.Context, outcomes ...string) (string, error) {
	<-d.done
	if d.err != nil {
		return "", d.err
	}
	got, err := d.to.outcome(ctx, d.result.ID)
	if err != nil {
		return "", fmt.Errorf("%w; its answer: %s%s", err, d.result.Body, d.result.ErrorBody)
	}
	well := got == "ran" || got == "already-done"
	if !slices.Contains(outcomes, got) || well != (d.result.ErrorType == "") {
		return got, fmt.Errorf("%w: the delivery of %s to process %s ended as %q, not %q; its answer: %s%s", errSpoiled, d.day, d.to.name,
			got, outcomes, d.result.Body, d.result.ErrorBody)
	}
	return got, nil
}
