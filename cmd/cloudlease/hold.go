package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/child"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// errFailed is the outcome of a command that did not return 0, for the job's history.
var errFailed = errors.New("the command failed")

// hold runs the command under l and returns when all of its processes are gone.
func (r *runner) hold(ctx context.Context, l *lease.Lease) error {
	if !r.begin() {
		return errFailed
	}
	if err := r.sup.Start(r.command(ctx, l), r.left(l)); err != nil {
		r.err = err
		return err
	}
	r.held.Store(l)
	defer r.held.Store(nil)
	r.grant(l) // a renewal may have passed before it was known whom to tell
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-l.Done(): // not released while the command runs, so lost
			r.sup.Kill()
		case <-over:
		}
	})
	done := func() {}
	r.result = r.sup.Wait(func() {
		done = r.waitFor(func() string { return "the command has ended; waiting for the processes that it has left" })
	})
	done()
	close(over)
	watching.Wait()
	if err := l.Err(); errors.Is(err, lease.ErrLost) {
		r.lost = err
	}
	if w := r.result.Why; r.result.Code == 0 && (w == child.ByItself || w == child.Told) { // it may do what it was told and be done
		return nil
	}
	return errFailed
}

// left is how long the command may still run.
func (r *runner) left(l *lease.Lease) time.Duration { return time.Until(l.Deadline()) - r.lead() }

// grant tells the supervisor how long the command may run after a renewal.
func (r *runner) grant(l *lease.Lease) {
	if l.Err() == nil {
		r.sup.Trust(r.left(l))
	}
}

// command is what to run, with what the lease adds to its environment.
func (r *runner) command(ctx context.Context, l *lease.Lease) child.Command {
	mine := map[string]string{
		"CLOUDLEASE_TOKEN": fmt.Sprint(l.Token()), "CLOUDLEASE_NAME": l.Name(), "CLOUDLEASE_HOLDER": l.Holder(),
		"CLOUDLEASE_DEADLINE": l.Deadline().UTC().Format(time.RFC3339Nano), "CLOUDLEASE_STORE": r.url, "CLOUDLEASE_OCCURRENCE": "",
	}
	if at, ok := singleton.OccurrenceFromContext(ctx); ok {
		mine["CLOUDLEASE_OCCURRENCE"] = at.Format(time.RFC3339)
	}
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if _, replaced := mine[name]; !replaced {
			env = append(env, pair)
		}
	}
	for name, value := range mine {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return child.Command{Path: r.path, Args: r.argv, Env: env, Grace: r.grace}
}
