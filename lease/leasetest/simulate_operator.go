package leasetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// operator looks at locks, breaks them and raises their floors, on a host whose clocks are right and whose requests are late at times.
type operator struct {
	*worker
	held map[string]heldSince // by lock
}

// heldSince is since when the operator sees a lock held with a token.
type heldSince struct {
	token lease.Token
	at    time.Time
}

// operate goes on until ctx ends.
func (x *simulation) operate(ctx context.Context, h *host, r *rand.Rand) {
	o := operator{&worker{simulation: x, host: h, rand: r}, map[string]heldSince{}}
	var names []string
	for i := range x.Names {
		names = append(names, x.name(i))
	}
	for i := range jobs {
		name, _ := jobName(i)
		names = append(names, name)
	}
	for ctx.Err() == nil {
		o.rest(ctx, x.TTL)
		var seen []lease.Info
		for _, name := range names {
			if info, err := o.host.store.Inspect(ctx, name); err == nil {
				o.watch(info)
				seen = append(seen, info)
			}
		}
		if len(seen) < len(names) {
			continue
		}
		info := seen[r.IntN(len(seen))]
		late := o.host.faults.Add(Rule{Kind: DelayBefore, Delay: o.within(x.TTL / 2), Every: 1 + r.IntN(3)})
		switch r.IntN(6) {
		case 0:
			o.breakIt(ctx, info)
		case 1:
			o.raise(ctx, info)
		}
		late.Stop()
	}
}

// watch looks for a lock that is held for longer than a dead lease lasts, and a late request may prolong that, by nobody.
func (o operator) watch(info lease.Info) {
	old := o.held[info.Name]
	switch {
	case info.State != lease.Held:
		delete(o.held, info.Name)
	case old.token != info.Token || o.history.trusted(info.Name, info.Token):
		o.held[info.Name] = heldSince{info.Token, time.Now()}
	case time.Since(old.at) > o.takeover()+longestDelay(o.TTL):
		o.Errorf("%q is held with token %d since %v, and nobody trusts it", info.Name, info.Token, time.Since(old.at))
	}
}

// bare is the store below the annotations.
func (h *host) bare() lease.Store {
	if u, ok := h.store.(interface{ Unwrap() lease.Store }); ok {
		return u.Unwrap()
	}
	return h.store
}

// under is the context of a call below the annotations.
func (o operator) under(ctx context.Context, op, name string) (context.Context, context.CancelFunc) {
	return context.WithTimeout(annotate(ctx, op, name), 2*o.TTL)
}

// breakIt ends the grant that was inspected a while ago.
func (o operator) breakIt(ctx context.Context, seen lease.Info) {
	breaker, ok := o.host.bare().(lease.Breaker)
	if !ok || seen.Token == 0 || seen.State != lease.Held && seen.State != lease.Dead {
		return
	}
	o.rest(ctx, o.TTL/2)
	ctx, cancel := o.under(ctx, "break", seen.Name)
	defer cancel()
	o.history.Excuse(seen.Name, seen.Token, time.Now().Add(o.For))
	err := breaker.Break(ctx, seen.Name, seen.Token, outOfOrder)
	switch {
	case err == nil: // its holder trusts it until its next renewal
		o.sum.count("broken by an operator")
		o.history.Excuse(seen.Name, seen.Token, time.Now().Add(o.TTL))
	case errors.Is(err, lease.ErrConflict):
		o.history.Excuse(seen.Name, seen.Token, time.Time{})
	}
}

// raise puts the floor of a free lock a little above its token: what is above the service's time is not remembered when a record is
// deleted.
func (o operator) raise(ctx context.Context, seen lease.Info) {
	floorer, ok := o.host.bare().(lease.Floorer)
	if !ok || seen.Token == 0 || seen.State == lease.Held {
		return
	}
	floor := seen.Token + lease.Token(1+o.rand.IntN(50)) //nolint:gosec // a small number
	ctx, cancel := o.under(ctx, "raise", seen.Name)
	defer cancel()
	if err := floorer.RaiseFloor(ctx, seen.Name, floor); err == nil {
		o.sum.count("floor raised")
		o.history.Floor(seen.Name, floor)
	}
}
