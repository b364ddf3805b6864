package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Probe is the name of the one lock that Check takes. It is nobody else's.
const Probe = "cloudlease-doctor-probe"

// Status is the verdict on an item.
type Status string

// The verdicts.
const (
	OK      Status = "ok"
	Warn    Status = "warn" // leases work; something else will not, or may not later
	Fail    Status = "fail" // leases do not work
	Skipped Status = "skip" // could not be looked at
)

// Item is one thing that was checked.
type Item struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Fix    string `json:"fix,omitempty"` // what to do, empty if nothing
}

// verdict turns the error of a check into an item. Errors of this module name the class and what to do. fix is what is said where
// they do not, or where something was denied: a check knows the action better.
func verdict(check, found, fix string, err error) Item {
	if err == nil {
		return Item{Check: check, Status: OK, Found: found}
	}
	item := Item{Check: check, Status: Fail, Found: err.Error(), Fix: fix}
	if e, ok := errors.AsType[*lease.Error](err); ok {
		short := *e
		short.Hint = ""
		if item.Found = short.Error(); e.Hint != "" && (fix == "" || !errors.Is(err, lease.ErrDenied)) {
			item.Fix = e.Hint
		}
	}
	return item
}

// round takes the probe lock, renews it, keeps a value with it and gives it back: what a holder does, once.
func round(ctx context.Context, s lease.Store, report func(Item)) {
	const check = "end to end"
	began := time.Now()
	token, err := holdOnce(ctx, s)
	took := time.Since(began).Round(time.Millisecond)
	if errors.Is(err, lease.ErrHeld) {
		report(Item{
			Check: check, Status: Skipped, Found: fmt.Sprintf("the lock %q is held: another doctor is at work", Probe),
			Fix: "run it again in a minute",
		})
		return
	}
	report(verdict(check, fmt.Sprintf("acquired %q with token %d, renewed, saved, released in %v", Probe, token, took), "", err))
}

// probeTTL leaves requests time on a slow network.
const probeTTL = 10 * time.Second

func holdOnce(ctx context.Context, s lease.Store) (lease.Token, error) {
	c, err := lease.New(s, &lease.Options{TTL: max(s.Limits().MinTTL, probeTTL), Observer: lease.ObserverFunc(func(lease.Event) {})})
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close(ctx) }()
	l, err := c.TryAcquire(ctx, Probe)
	if err != nil {
		return 0, err
	}
	if _, err := s.Renew(ctx, l.Grant()); err != nil {
		return l.Token(), errors.Join(err, l.Release(ctx))
	}
	if err := l.Save(ctx, []byte("doctor")); err != nil {
		return l.Token(), errors.Join(err, l.Release(ctx))
	}
	return l.Token(), l.Release(ctx)
}

// closeEnough is how far this host's clock may be off without a word.
const closeEnough = time.Second

// clockItem compares this host's clock with a service's Date, which tells whole seconds, of an answer that came between
// sent and received. It is the one place where a host's clock is compared with anything, and only for information.
func clockItem(date, sent, received time.Time) Item {
	const check = "clock"
	if date.IsZero() {
		return Item{
			Check: check, Status: Fail, Found: "the service does not tell its time (no Date header)",
			Fix: "point the endpoint at the service itself, or let proxies pass its headers",
		}
	}
	least, most := date.Sub(received), date.Add(time.Second).Sub(sent)
	off := time.Duration(0) // by as little as the answer allows
	switch {
	case least > 0:
		off = least
	case most < 0:
		off = most
	}
	if off.Abs() <= closeEnough {
		return Item{Check: check, Status: OK, Found: fmt.Sprintf("this host's clock is within %v of the service's", (off.Abs() + time.Second).Round(time.Second))}
	}
	direction := "behind"
	if off < 0 {
		direction = "ahead of"
	}
	return Item{
		Check: check, Status: Warn, Found: fmt.Sprintf("this host's clock is %v %s the service's", off.Abs().Round(100*time.Millisecond), direction),
		Fix: "synchronize it (NTP): leases do not depend on it, but signatures are refused when it is minutes off",
	}
}
