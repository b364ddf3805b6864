package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/child"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// refused is the end of a run whose lock was not obtained.
func (r *runner) refused(ctx context.Context, err error) error {
	if !errors.Is(err, lease.ErrHeld) {
		return &exitError{code: r.codes.of(err), err: err}
	}
	if r.ifHeld == heldSkip {
		r.say("%v: skipped", err)
		return nil
	}
	since, advice := r.advice(ctx)
	return &exitError{code: r.codes["held"], err: fmt.Errorf("%w%s", err, since), advice: advice}
}

// advice says since when the lock is held, and in lines of their own how to wait for it or to force it.
func (r *runner) advice(ctx context.Context) (since, lines string) {
	info, err := r.client.Inspect(ctx, r.name)
	if err != nil || info.State != lease.Held && info.State != lease.Dead {
		return "; try again", ""
	}
	if !info.Since.IsZero() {
		since = ", since " + info.Since.UTC().Format(time.RFC3339)
	}
	return since, fmt.Sprintf("  to wait for it:    add --wait 10m\n  to take it away:   cloudlease break %s --token %d --yes   (its holder may go on for up to one TTL)\n",
		quoted(r.name), info.Token)
}

// end is the end of a run whose command was started, or could not be. released is how the lock was given back.
func (r *runner) end(released error) error {
	if stopped := r.interrupted(); stopped != nil {
		return stopped
	}
	if r.err != nil {
		code := child.CodeNotExecutable
		if e, ok := errors.AsType[*child.StartError](r.err); ok {
			code = e.Code
		}
		return &exitError{code: code, err: fmt.Errorf("%w%s", r.err, repair(r.err))}
	}
	if r.lost == nil && errors.Is(released, lease.ErrLost) {
		r.lost = released
	}
	switch {
	case r.lost != nil:
		return &exitError{code: r.codes["lost"], err: fmt.Errorf("the command was ended (%d): %w", r.result.Code, r.lost)}
	case r.result.Why == child.TimeIsUp:
		return &exitError{code: r.codes["lost"], err: fmt.Errorf("the lease on %s was not renewed in time: the command was ended (%d) before another could get the lock",
			quoted(r.name), r.result.Code)}
	case r.result.Why == child.Orphaned:
		r.say("the helper process was killed, and the command with it")
	}
	code := r.result.Code
	if released != nil {
		r.say("the command is done, but the lock could not be given back: %v", released)
		if code == 0 {
			code = r.codes["release"]
		}
	}
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// repair says what to do about a command whose file is there and executable, but is not started.
func repair(err error) string {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return "; begin it with a line such as #!/bin/sh, or run it by its interpreter"
	case errors.Is(err, syscall.ENOENT):
		return "; the interpreter that it names (in its first line) is missing"
	case errors.Is(err, syscall.E2BIG):
		return "; pass less in arguments and environment"
	}
	return ""
}

// scheduled runs the command as a job, once for its occurrence.
func (r *runner) scheduled(ctx context.Context) error {
	wait := r.wait
	if r.ifHeld == heldWait && wait == 0 {
		wait = 1<<63 - 1 // ctx ends it
	}
	job, err := singleton.New(r.client, r.name, &singleton.Options{Policy: r.policy, Wait: wait})
	if err != nil {
		return &exitError{code: r.codes.of(err), err: err}
	}
	done := r.waitFor(r.waiting)
	res, err := job.Run(ctx, r.occurrence, func(ctx context.Context, l *lease.Lease) error {
		done()
		return r.hold(ctx, l)
	})
	done()
	if stopped := r.interrupted(); stopped != nil {
		return stopped
	}
	if r.running {
		if errors.Is(err, lease.ErrLost) && r.lost == nil {
			r.lost = err
		}
		return r.end(res.Release)
	}
	return r.unstarted(ctx, res, err)
}

// unstarted is the end of a delivery whose command was not run.
func (r *runner) unstarted(ctx context.Context, res singleton.Result, err error) error {
	at := r.occurrence.Format(time.RFC3339)
	switch res.Outcome {
	case singleton.AlreadyDone, singleton.Stale:
		r.say("%s at %s: %s, skipped", quoted(r.name), at, res.Outcome)
		return nil
	case singleton.Paused:
		r.say("%s is paused: %s is not run; cloudlease resume %s ends the pause", quoted(r.name), at, quoted(r.name))
		return nil
	case singleton.Busy:
		r.say("%s at %s: skipped, another occurrence runs (token %d, %s)", quoted(r.name), at, res.Token, res.Holder)
		return nil
	case singleton.InDoubt, singleton.FailedBefore:
		return &exitError{code: r.codes["doubt"], err: fmt.Errorf("%w: cloudlease clear %s %s", err, quoted(r.name), at)}
	case singleton.Running:
		return r.refused(ctx, err)
	default: // not-run
		return &exitError{code: r.codes.of(err), err: err}
	}
}
