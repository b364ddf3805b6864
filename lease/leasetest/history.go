package leasetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// History is what holders believed and what guards did. It is safe for concurrent use.
//
// That no two holders trust at one instant is checked whenever one is granted: whoever trusted then must have stopped, and
// who has stopped must never trust again. So it suffices that Watch or Hold is called when a grant has just come.
type History struct {
	mu      sync.Mutex
	began   time.Time
	holds   []*hold
	excused map[excuse]time.Time // until when
	faults  []string
	clock   int64 // orders the beginnings and ends of guarded operations
	guarded []*guardedOp
}

type hold struct {
	name, holder string
	token        lease.Token
	at           time.Duration
	trusts       func() bool
	over         bool // it was seen not to trust
}

// excuse is a grant that an operator breaks.
type excuse struct {
	name  string
	token lease.Token
}

// NewHistory makes an empty history.
func NewHistory() *History { return &History{began: time.Now(), excused: map[excuse]time.Time{}} }

// Watch records a lease that was just granted.
func (h *History) Watch(l *lease.Lease) {
	h.Hold(l.Name(), l.Holder(), l.Token(), func() bool { return l.Err() == nil })
}

// Hold records a grant that just came. trusts tells whether its holder still acts on it; it must not call the History.
func (h *History) Hold(name, holder string, token lease.Token, trusts func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := time.Since(h.began)
	if token == 0 || token > lease.MaxToken {
		h.faultf("%v: %q was granted to %s with token %d, which is none", at, name, holder, token)
	}
	_, broken := h.excused[excuse{name, token}] // it may come late, when another has the lock already
	for _, old := range h.holds {
		if old.name != name || broken {
			continue
		}
		if h.trusting(old) && time.Now().After(h.excused[excuse{name, old.token}]) {
			h.faultf("%v: %q was granted to %s with token %d while %s still trusted token %d, granted at %v",
				at, name, holder, token, old.holder, old.token, old.at)
		}
		if token <= old.token {
			h.faultf("%v: %q was granted to %s with token %d after token %d was granted to %s at %v",
				at, name, holder, token, old.token, old.holder, old.at)
		}
	}
	h.holds = append(h.holds, &hold{name: name, holder: holder, token: token, at: at, trusts: trusts})
}

// Release records that the holder of token is about to release it and does not trust it any more.
func (h *History) Release(name string, token lease.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, old := range h.holds {
		if old.name == name && old.token == token {
			old.over, old.trusts = true, func() bool { return false }
		}
	}
}

// Forget drops the holds of name but not their tokens: the record was deleted behind the library's back, and for one TTL
// two holders may trust.
func (h *History) Forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, old := range h.holds {
		if old.name == name {
			old.trusts = func() bool { return false }
		}
	}
}

// Excuse lets the holder of token trust beside another until then, because an operator breaks its lease, or may have done so. A
// zero until takes that back.
func (h *History) Excuse(name string, token lease.Token, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if until.IsZero() {
		delete(h.excused, excuse{name, token})
		return
	}
	h.excused[excuse{name, token}] = until
}

func (h *History) excuses(name string, token lease.Token) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.excused[excuse{name, token}]
	return ok
}

// trusted tells whether the holder of token trusts it.
func (h *History) trusted(name string, token lease.Token) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, old := range h.holds {
		if old.name == name && old.token == token && h.trusting(old) {
			return true
		}
	}
	return false
}

// Floor records that tokens which are granted from now on are above token.
func (h *History) Floor(name string, token lease.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	never := func() bool { return false }
	h.holds = append(h.holds, &hold{name: name, holder: "an operator", token: token, at: time.Since(h.began), trusts: never})
}

// trusting asks a holder, and faults it if it trusts again.
func (h *History) trusting(old *hold) bool {
	trusts := old.trusts()
	if trusts && old.over {
		h.faultf("%s trusts token %d of %q again, which it had stopped to trust", old.holder, old.token, old.name)
	}
	old.over = old.over || !trusts
	return trusts
}

func (h *History) faultf(format string, args ...any) {
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// Check reports to t everything that was wrong.
func (h *History) Check(t testing.TB) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, old := range h.holds {
		h.trusting(old)
	}
	for _, f := range h.faults {
		t.Error(f)
	}
	h.faults = nil
	h.checkGuarded(t)
}

// Guard is g with every operation recorded.
func (h *History) Guard(g fence.Guard) fence.Guard { return recordedGuard{g: g, h: h} }
