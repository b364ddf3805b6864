package election

import (
	"errors"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Options are an election's options. The zero value of every field is its documented default; a nil *Options is all defaults.
// TTL, heartbeat and margin are the client's.
type Options struct {
	// StopLimit is how long lead may take to return after its context has ended. Then Run returns ErrOverrun. Default: the
	// client's TTL. While Run's own context has ended and the lease is valid, it is renewed for as long.
	StopLimit time.Duration

	// Exit is called with ExitCode if lead is still running at its hard limit: when its lost lease ends on the service, r+TTL
	// (r: the last good renewal was sent), or at StopLimit, whichever is first. Give it os.Exit, so that a process which
	// cannot stop leading ends before another leads. It is called on a goroutine of Run. Default: not called.
	Exit func(code int)

	// Pause is how long a candidate stands back after a term before it stands again, so that another leads after a
	// resignation: waiters look about once a second. It doubles while terms are shorter than two TTLs. Default 2 s.
	// The terms of one candidate start a TTL apart at least.
	Pause time.Duration

	// MaxPause bounds the doubled Pause. Default: the client's TTL, or Pause where that is longer.
	MaxPause time.Duration

	// Look is how often Changes looks who leads. Default 600 ms, so that a change is told within a second; at least 100 ms.
	Look time.Duration
}

// ExitCode is the code that Options.Exit is called with: one that neither the shell nor sysexits.h uses.
const ExitCode = 79

const (
	defaultPause = 2 * time.Second
	defaultLook  = 600 * time.Millisecond
	minLook      = 100 * time.Millisecond
	minMargin    = 100 * time.Millisecond // between the loss of a lease and its end, for Options.Exit
)

// withDefaults fills o in for a client with the options c and reports every fault at once.
func (o Options) withDefaults(name string, c lease.Options) (Options, error) {
	if o.StopLimit == 0 {
		o.StopLimit = c.TTL
	}
	if o.Pause == 0 {
		o.Pause = defaultPause
	}
	if o.MaxPause == 0 {
		o.MaxPause = max(c.TTL, o.Pause)
	}
	if o.Look == 0 {
		o.Look = defaultLook
	}
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, lease.Invalid("configure", name, format, args...))
	}
	if err := lease.CheckName(name); err != nil {
		faults = append(faults, &lease.Error{Op: "configure", Class: lease.ErrInvalid, Err: err})
	}
	if o.StopLimit < 0 {
		fault("the stop limit %v is negative", o.StopLimit)
	}
	if o.Pause < 0 {
		fault("the pause %v after a term is negative", o.Pause)
	}
	if o.MaxPause < o.Pause {
		fault("the longest pause %v is below the pause %v", o.MaxPause, o.Pause)
	}
	if o.Look < minLook {
		fault("a look every %v is more often than every %v", o.Look, minLook)
	}
	if o.Exit != nil && c.Margin < minMargin {
		fault("the client's margin %v leaves lead less than %v to stop before the process is ended", c.Margin, minMargin)
	}
	return o, errors.Join(faults...)
}
