package leasetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// books are kept of what the stores of a simulation told, to compare it with what they tell later. Nil books are kept by nobody.
//
// Only what was answered before a call began binds the call: of two that overlap, either may have been first.
type books struct {
	e   *env
	eye *host // sees the service as it is

	mu       sync.Mutex
	locks    map[string]*lockBook
	attempts map[string]*attemptBook
	hosts    map[string]*host // by holder
}

// attemptBook is of one attempt and what it was granted.
type attemptBook struct {
	name     string
	granted  time.Time
	doubt    bool      // the newest answers leave open whether it was granted
	released time.Time // when its first release began
	releases int
	freed    time.Time // when a release was told to be done
	lost     bool      // the store said so
}

// lockBook is of one lock.
type lockBook struct {
	reset  time.Time // when its record was deleted or replaced behind the library's back
	grants []told
	values []told
	marks  markBook
}

// told is what was answered at some time: a grant, or a value that was stored.
type told struct {
	at    time.Time
	token lease.Token
	value version
}

func newBooks(e *env) *books {
	return &books{e: e, locks: map[string]*lockBook{}, attempts: map[string]*attemptBook{}, hosts: map[string]*host{}}
}

func (b *books) lock(name string) *lockBook {
	if b.locks[name] == nil {
		b.locks[name] = &lockBook{}
	}
	return b.locks[name]
}

func (b *books) attempt(g lease.Grant) *attemptBook {
	if b.attempts[g.Attempt] == nil {
		b.attempts[g.Attempt] = &attemptBook{name: g.Name}
	}
	return b.attempts[g.Attempt]
}

// forget drops what was told of name: its record is deleted, or replaced by an older one, at this instant.
func (b *books) forget(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.locks[name] = &lockBook{reset: time.Now()}
}

// begins takes note of what may have happened from now on.
func (b *books) begins(h *host, c storeCall) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attempt(c.asked)
	switch c.op {
	case "acquire":
		b.hosts[c.asked.Holder] = h
		b.lock(c.name).marks.asks(c.asked.Mark)
	case "release":
		a.releases++
		if a.released.IsZero() {
			a.released = c.began
		}
		b.lock(c.name).marks.finishes(c.final.Marks)
	case "renew", "save":
		if !a.released.IsZero() && c.began.After(a.released) {
			b.e.Errorf("%s of %q with token %d is sent after its release", c.op, c.name, c.asked.Token)
		}
	}
}

// saw compares what a call has told with what was told before.
func (b *books) saw(h *host, c storeCall) {
	if b == nil || h == b.eye {
		return
	}
	b.checkSent(h, c)
	b.mu.Lock()
	l := b.lock(c.name)
	current := c.began.After(l.reset)
	if current {
		switch c.op {
		case "acquire":
			b.acquired(l, c)
		case "save", "release":
			b.stored(h, l, c)
		case "inspect":
			b.inspected(l, c)
		}
	}
	lost := c.op != "acquire" && errors.Is(c.err, lease.ErrLost)
	known := b.attempt(c.asked).lost
	b.attempt(c.asked).lost = known || lost
	b.mu.Unlock()
	if lost && current && !known {
		b.judgeLoss(h, c)
	}
}

// checkSent wants the trust in what was granted or renewed to count from before a request was sent, not from its answer.
func (b *books) checkSent(h *host, c storeCall) {
	gives := c.op == "acquire" || c.op == "renew" || c.op == "save"
	if last := h.lastSent(); gives && c.err == nil && c.grant.Sent.Mono > last.Mono {
		b.e.Errorf("%s of %q with token %d is trusted from %v after the last request was sent", c.op, c.name, c.grant.Token,
			c.grant.Sent.Mono-last.Mono)
	}
}

// stored takes note of what a save or a release has left. A release that is recognized by its marks may have left no value.
func (b *books) stored(h *host, l *lockBook, c storeCall) {
	if c.err != nil {
		return
	}
	a := b.attempt(c.asked)
	if c.op == "release" && a.freed.IsZero() {
		a.freed = c.ended
	}
	certain := c.final.Marks == nil || a.releases == 1 && h.trust(c.asked) > 0 && !b.e.history.excuses(c.name, c.asked.Token)
	if c.final.Value != nil && certain {
		l.values = append(l.values, told{c.ended, c.asked.Token, versionOf(c.final.Value)})
	}
	if c.final.Marks != nil {
		l.marks.finished = append(l.marks.finished, occurrenceTold{c.ended, c.final.Marks.Finished})
	}
}

func (b *books) acquired(l *lockBook, c storeCall) {
	a := b.attempt(c.asked)
	if c.err != nil {
		a.doubt = a.doubt || errors.Is(c.err, lease.ErrInDoubt)
		held, ok := errors.AsType[*lease.HeldError](c.err)
		if ok && strings.HasPrefix(c.asked.Holder, ownHolder) && held.Holder == c.asked.Holder {
			b.e.Errorf("the attempt of %s on %q is refused because it was granted before", c.asked.Holder, c.name)
		}
		if errors.Is(c.err, lease.ErrPassed) {
			l.marks.checkPassed(b.e, c)
		}
		return
	}
	a.doubt, a.granted = false, c.ended
	v := l.read(b.e, c, c.grant.Value)
	l.marks.checkGrant(b.e, c)
	l.grants = append(l.grants, told{c.ended, c.grant.Token, v})
}

func (b *books) inspected(l *lockBook, c storeCall) {
	if c.err != nil || c.info.State == lease.Absent {
		return
	}
	if last, ok := newest(l.grants, c.began); ok && c.info.Token < last.token {
		b.e.Errorf("an inspection of %q tells token %d after token %d was granted", c.name, c.info.Token, last.token)
	}
	l.read(b.e, c, c.info.Value)
}

// newest is the one with the highest token among those that were told before t.
func newest(all []told, t time.Time) (best told, ok bool) {
	for _, one := range all {
		if one.at.Before(t) && one.token >= best.token {
			best, ok = one, true
		}
	}
	return best, ok
}

// version orders the values of a lock: by who wrote them and in which order.
type version struct {
	token lease.Token
	n     uint64
}

func (v version) older(w version) bool { return v.token < w.token || v.token == w.token && v.n < w.n }

// value is one that versionOf reads.
func (v version) value() []byte { return fmt.Appendf(nil, "%d %d", v.token, v.n) }

func versionOf(value []byte) version {
	var v version
	_, _ = fmt.Sscanf(string(value), "%d %d", &v.token, &v.n)
	return v
}

// read checks a value that c told: none that is older than what was stored, and, once a later holder has been granted the lock with
// one value, no other of an earlier holder.
func (l *lockBook) read(e *env, c storeCall, value []byte) version {
	got := versionOf(value)
	for _, stored := range l.values {
		if stored.at.Before(c.began) && got.older(stored.value) {
			e.Errorf("%s of %q tells the value %q after %q was stored", c.op, c.name, value, stored.value.value())
			break
		}
	}
	last, ok := newest(l.grants, c.began)
	if ok && got.token < last.token && got != last.value {
		e.Errorf("%s of %q tells the value %q although token %d was granted with %q", c.op, c.name, value, last.token, last.value.value())
	}
	return got
}

// judgeLoss looks whether a loss that the store told can be true: while a holder may trust, nothing takes the lock from it but an
// operator, and a late request of its own host where the service takes that for the same holder. A release that was told to be lost
// must not be what has freed the lock.
func (b *books) judgeLoss(h *host, c storeCall) {
	g := c.asked
	if g.Token == 0 || b.e.history.excuses(g.Name, g.Token) {
		return
	}
	info, err := b.eye.store.Inspect(b.e.Context(), g.Name)
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attempt(g)
	if err != nil || !a.granted.After(b.lock(g.Name).reset) || h.steppedSince(a.granted) {
		return
	}
	// What was under way for a while may have been overtaken by the store's own clearing up of what its holder does not want.
	asked := a.released.IsZero() || c.op == "release" && a.releases == 1 && c.ended.Sub(c.began) < h.e.TTL/100
	itself := info.Token > g.Token && b.hosts[info.Holder] == h || c.op == "release" && info.State == lease.Held && b.hosts[info.Holder] == h
	if left := h.trust(g); asked && !itself && left > h.e.TTL/20 {
		b.e.Errorf("%s of %q with token %d tells a loss while %s may trust it for %v: %v", c.op, g.Name, g.Token, g.Holder, left, c.err)
	}
	broken := info.Broken != nil && info.Broken.Token == g.Token
	if c.op == "release" && info.State == lease.Free && info.Token == g.Token && !broken {
		b.e.Errorf("a release of %q with token %d tells a loss, and the lock is free since that token: %v", g.Name, g.Token, c.err)
	}
}

// wrote checks a write that depends on g and began then: none passes that began after a later grant was told, nor, if it stops at the
// release, after that.
func (b *books) wrote(g lease.Grant, began time.Time, atRelease bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attempt(g)
	last, ok := newest(b.lock(g.Name).grants, began)
	if ok && last.token > g.Token {
		b.e.Errorf("a write that depends on token %d of %q passes after token %d was granted", g.Token, g.Name, last.token)
	}
	if atRelease && !a.freed.IsZero() && a.freed.Before(began) {
		b.e.Errorf("a write that depends on token %d of %q passes after its release", g.Token, g.Name)
	}
}

// lossWasTold tells whether the store has said that g is over.
func (b *books) lossWasTold(g lease.Grant) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempt(g).lost
}

// observed checks an event: a lease that is gone is gone because the store said so.
func (b *books) observed(h *host, ev lease.Event) {
	if b == nil || ev.Kind != lease.Lost || ev.Loss != lease.Gone {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	said := slices.ContainsFunc(h.calls, func(c storeCall) bool {
		return c.name == ev.Name && c.asked.Token == ev.Token && errors.Is(c.err, lease.ErrLost)
	})
	if !said {
		b.e.Errorf("the lease of %q with token %d ends as gone, which no answer has said: %v", ev.Name, ev.Token, ev.Err)
	}
}

// finish looks for attempts that nobody knows the outcome of and nobody gave back.
func (b *books) finish() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.attempts {
		if a.doubt && a.releases == 0 {
			b.e.Errorf("an attempt on %q ended in doubt and was not given back", a.name)
		}
	}
}
