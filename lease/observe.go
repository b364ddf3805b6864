package lease

import (
	"context"
	"log/slog"
	"time"
)

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	Acquired      EventKind = "acquired"       // a lease was granted; Took is the time it took, waiting included
	Contended     EventKind = "contended"      // another holder has the lock; Err is the *HeldError
	Namesake      EventKind = "namesake"       // another instance of our own name has it, told once; see Client.Namesake
	Renewed       EventKind = "renewed"        // Took is the request's time
	RenewFailed   EventKind = "renew failed"   // the renewal is tried again until the deadline
	Jeopardy      EventKind = "in jeopardy"    // a third of the lease is left and no renewal has passed; Took is what is left
	Lost          EventKind = "lost"           // the lease is over; Took is how long it was held; Loss and Err say why
	Released      EventKind = "released"       // Took is how long it was held
	ReleaseFailed EventKind = "release failed" // the lock stays until its lease ends at the latest
	Abandoned     EventKind = "abandoned"      // an acquire of unknown outcome was given back; Err: it could not be
	StoreFailed   EventKind = "store failed"   // an acquire did not reach the store or was not answered
)

// LossKind says why a lease was lost, for alarms and metrics.
type LossKind string

// The kinds of losses.
const (
	Gone      LossKind = "gone"      // the store said so: it was broken, deleted, or taken after its end
	Unrenewed LossKind = "unrenewed" // the deadline came, and the renewals before it had failed
	Paused    LossKind = "paused"    // the deadline came without a failed renewal: a pause, a frozen clock, a request that hung
	Capped    LossKind = "capped"    // held for Options.MaxHold
	Idle      LossKind = "idle"      // no progress for Options.Progress
	GivenUp   LossKind = "given up"  // its holder called Lease.Lapse
)

// Event is something that happened to a lease. It carries no secret: no attempt, proof or value.
type Event struct {
	Kind   EventKind
	Name   string
	Holder string
	Token  Token // 0 where there is none
	Took   time.Duration
	Tries  int      // Acquired only: how many attempts it took, 1 = at once
	Loss   LossKind // Lost only
	Err    error
}

// Observer is told what happens to leases. Observe is called from several goroutines, outside of all locks, and should
// return soon: a renewal may be waiting for it.
type Observer interface {
	Observe(Event)
}

// ObserverFunc is a function as an Observer.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// LogObserver writes events to l (nil: slog.Default at the time of the event): renewals and contention at debug level,
// grants and releases at info, failures at warn, losses at error. Kinds that are not of this package, which recipes tell
// through the same observer, are written at info, or at warn if they carry an error.
func LogObserver(l *slog.Logger) Observer {
	return ObserverFunc(func(e Event) {
		log := l
		if log == nil {
			log = slog.Default()
		}
		level := levelOf(e)
		if !log.Enabled(context.Background(), level) {
			return
		}
		attrs := []slog.Attr{
			slog.String("event", string(e.Kind)), slog.String("lock", e.Name), slog.String("holder", e.Holder),
		}
		if e.Token != 0 {
			attrs = append(attrs, slog.Uint64("token", uint64(e.Token)))
		}
		if e.Took != 0 {
			attrs = append(attrs, slog.Duration("took", e.Took))
		}
		if e.Tries > 1 {
			attrs = append(attrs, slog.Int("tries", e.Tries))
		}
		if e.Loss != "" {
			attrs = append(attrs, slog.String("loss", string(e.Loss)))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.String("err", e.Err.Error()))
		}
		log.LogAttrs(context.Background(), level, "lease", attrs...)
	})
}

func levelOf(e Event) slog.Level {
	switch e.Kind {
	case Renewed, Contended:
		return slog.LevelDebug
	case Acquired, Released:
		return slog.LevelInfo
	case Namesake, RenewFailed, Jeopardy, ReleaseFailed, Abandoned, StoreFailed:
		return slog.LevelWarn
	case Lost:
		return slog.LevelError
	}
	if e.Err != nil {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
