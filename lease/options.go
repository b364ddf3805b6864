package lease

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Options are a client's options. The zero value of every field is its documented default; a nil *Options is all defaults.
type Options struct {
	// TTL is how long a lease lasts without renewal. Default 30 s, or the nearest the store allows. Keep it at a minute
	// or less: long jobs renew, and a dead holder blocks the lock for about this long.
	TTL time.Duration

	// Heartbeat is the pause between renewals, jittered by 10 %. Default TTL/3; below TTL/2, so that a failed
	// renewal can be tried again in time.
	Heartbeat time.Duration

	// Margin is taken off the end of every lease, so that a holder stops before the service can give the lock away.
	// Default TTL/10.
	Margin time.Duration

	// MaxHold ends the renewals of a lease that has been held this long, so that a stuck holder cannot keep it for ever;
	// the lease is then lost at its deadline. Default 0: no limit.
	MaxHold time.Duration

	// Progress ends the renewals of a lease whose holder has not called Lease.Progress for this long (the grant counts as
	// a call); the lease is then lost at its deadline. Default 0: not watched.
	Progress time.Duration

	// CallTimeout bounds one request. A renewal is bounded by its lease's deadline as well. Default TTL/3, within 1 s
	// and 5 s.
	CallTimeout time.Duration

	// Holder is the name shown to others, 1 to 200 bytes. It need not be unique: an instance id is appended, so that
	// two clients of one name are told apart. Default host:pid.
	Holder string

	// Observer is told what happens to leases. Default: LogObserver with slog.Default.
	Observer Observer
}

// The limits of a client's own durations.
const (
	minCallTimeout = time.Second
	maxCallTimeout = 5 * time.Second
	maxHolder      = 200
)

// withDefaults fills o in and checks its durations against each other and against the store's limits. It reports every
// fault at once.
func (o Options) withDefaults(l Limits) (Options, error) {
	if o.TTL == 0 {
		o.TTL = max(min(30*time.Second, l.MaxTTL), l.MinTTL)
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = o.TTL / 3
	}
	if o.Margin == 0 {
		o.Margin = o.TTL / 10
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = min(max(o.TTL/3, minCallTimeout), maxCallTimeout)
	}
	if o.Holder == "" {
		o.Holder = defaultHolder()
	}
	if o.Observer == nil {
		o.Observer = LogObserver(nil)
	}
	return o, o.check(l)
}

func (o Options) check(l Limits) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, Invalid("configure", "", format, args...)) }
	if o.TTL < l.MinTTL || o.TTL > l.MaxTTL {
		fault("TTL %v is outside what %s allows: %v to %v", o.TTL, l.Store, l.MinTTL, l.MaxTTL)
	}
	if l.Granularity > 0 && o.TTL%l.Granularity != 0 {
		fault("TTL %v is not a multiple of %v, which %s asks for", o.TTL, l.Granularity, l.Store)
	}
	if o.Heartbeat < 0 || o.Heartbeat >= (o.TTL+1)/2 {
		fault("heartbeat %v is not below half of the TTL %v: a failed renewal could not be tried again in time", o.Heartbeat, o.TTL)
	}
	if o.Margin < 0 || o.Heartbeat+o.Margin >= o.TTL {
		fault("margin %v and heartbeat %v leave nothing of the TTL %v", o.Margin, o.Heartbeat, o.TTL)
	}
	if o.MaxHold < 0 || o.MaxHold > 0 && o.MaxHold < o.TTL {
		fault("the longest hold %v is below the TTL %v", o.MaxHold, o.TTL)
	}
	if o.Progress < 0 || o.Progress > 0 && o.Progress < o.TTL/3 {
		fault("the progress limit %v is below a third of the TTL %v", o.Progress, o.TTL)
	}
	if o.CallTimeout < 0 {
		fault("call timeout %v is negative", o.CallTimeout)
	}
	if f, ok := o.Observer.(ObserverFunc); ok && f == nil {
		fault("the observer is a nil function")
	}
	if err := CheckName(o.Holder); err != nil || len(o.Holder) > maxHolder {
		fault("holder %.40q is not 1 to %d bytes of UTF-8 without control characters", o.Holder, maxHolder)
	}
	return errors.Join(faults...)
}

func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return fmt.Sprintf("%.100s:%d", host, os.Getpid())
}
