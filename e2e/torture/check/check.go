//go:build unix

// Package check looks in the history of a campaign for what must never be:
//
//   - two holders that trusted one lock at one instant. A holder trusts from the grant's arrival until it found its lease lost,
//     began to release it, or reached the deadline that it had told last, whichever is first; and whatever it told, it trusted
//     at every instant at which it acted on its lease;
//   - a token that is not higher than every token of a grant that had arrived before this one was asked for;
//   - a guarded write that was stored after one with a higher token, or any history that no fenced register could have;
//   - a lock that stays without a holder although somebody able was asking for it for longer than the bound;
//   - something left behind by a process that ended in good order, and whatever a process itself found wrong.
package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
)

// Rules are the figures that a history is checked against.
type Rules struct {
	// Bound is how long after its holder's last good renewal a dead lock is free at the latest.
	Bound time.Duration
	// Settle is how long after an obstacle the last request that suffered from it may be repeated.
	Settle time.Duration
	// Delay is how long after its sender gave it up a request may still be done.
	Delay time.Duration
	// Late is how long after its sending an unanswered write can still be done.
	Late time.Duration
	// Anew says that leases begin anew after an obstacle that stood in the way of all.
	Anew bool
	// Restored are the stretches in which the service was set back to an older state while holders were alive: until a TTL after
	// it two may trust one lock.
	Restored []Stretch
	TTL      time.Duration
	// Beyond leaves trust and progress alone: the campaign went beyond what they are promised for. Tokens and the fence hold all
	// the same.
	Beyond bool
}

// Stretch is a stretch of time.
type Stretch struct{ From, Until time.Duration }

// Violation is something that must never be.
type Violation struct {
	At   time.Duration
	Lock string
	What string
}

// TakeOver is a grant of a lock whose former holder had not released it.
type TakeOver struct {
	Lock string
	From *Hold
	To   *Hold
	Took time.Duration // from the former holder's last good renewal
	Able time.Duration // how much of it somebody was asking for the lock with no obstacle in the way
}

// Report is what a history says.
type Report struct {
	Holds      []*Hold
	Writes     map[history.Outcome]int
	Reads      int
	TakeOvers  []TakeOver
	LongestGap time.Duration // the longest that a lock had no holder while somebody able was asking for it
	Excused    int           // grants while another trusted, within a TTL after a restore
	Violations []Violation
}

// Check checks a history. The events may come in any order.
func Check(events []history.Event, r Rules) Report {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b history.Event) int { return int(a.At - b.At) })
	rep := Report{Holds: holdsOf(events), Writes: map[history.Outcome]int{}}
	locks := byLock(rep.Holds)
	rep.checkFindings(events)
	rep.checkGuards(events, r)
	for _, holds := range locks {
		rep.checkTokens(holds)
		if !r.Beyond {
			rep.checkTrust(holds, r)
		}
	}
	if !r.Beyond {
		rep.checkProgress(events, locks, r)
	}
	slices.SortFunc(rep.Violations, func(a, b Violation) int { return int(a.At - b.At) })
	return rep
}

func (rep *Report) violated(at time.Duration, lock, format string, args ...any) {
	rep.Violations = append(rep.Violations, Violation{At: at, Lock: lock, What: fmt.Sprintf(format, args...)})
}

// checkFindings takes over what the processes found.
func (rep *Report) checkFindings(events []history.Event) {
	for _, e := range events {
		switch {
		case e.Kind == history.Finding:
			rep.violated(e.At, e.Lock, "%s found: %s", e.Worker, e.Err)
		case e.Kind == history.Stopped && e.Err != "":
			rep.violated(e.At, e.Lock, "%s ended and left behind: %s", e.Worker, e.Err)
		}
	}
}

// Hold is one grant of a lock and what its holder believed of it.
type Hold struct {
	Lock    string
	Worker  string
	Life    int
	Token   uint64
	Asked   time.Duration // when the request that gave the grant was sent
	Granted time.Duration // when the grant had arrived
	Renewed time.Duration // when the last good request for it was sent
	Until   time.Duration // the end of trust: the deadline as told last, or the end as it was found, whichever is first
	Acted   time.Duration // the last instant at which its holder acted on it
	Left    time.Duration // when its release was begun; 0: never
	Freed   bool          // the release was answered
}

// end is the end of trust: what was told, unless the holder was seen to act later.
func (h *Hold) end() time.Duration { return max(h.Until, h.Acted) }

func (h *Hold) String() string {
	return fmt.Sprintf("%s.%d with token %d (from %.3f s to %.3f s)", h.Worker, h.Life, h.Token, h.Granted.Seconds(), h.end().Seconds())
}

type holdKey struct {
	lock, worker string
	life         int
	token        uint64
}

// holdsOf gathers what is told of each grant.
func holdsOf(events []history.Event) []*Hold {
	var holds []*Hold
	known := map[holdKey]*Hold{}
	ended := map[*Hold]time.Duration{}
	for _, e := range events {
		key := holdKey{e.Lock, e.Worker, e.Life, e.Token}
		h := known[key]
		if e.Kind == history.Granted {
			h = &Hold{
				Lock: e.Lock, Worker: e.Worker, Life: e.Life, Token: e.Token, Asked: e.Sent, Granted: e.At, Renewed: e.Sent, Until: e.Until,
			}
			known[key] = h
			holds = append(holds, h)
		}
		if h == nil {
			continue
		}
		switch e.Kind {
		case history.Renewed:
			h.Renewed, h.Until = max(h.Renewed, e.Sent), max(h.Until, e.Until)
		case history.Acted:
			h.Acted = max(h.Acted, e.At)
		case history.Ended, history.Leaving:
			if _, before := ended[h]; !before {
				ended[h] = e.At
			}
			if e.Kind == history.Leaving {
				h.Left = e.At
			}
		case history.Released:
			h.Freed = e.Err == ""
		default:
		}
	}
	for h, at := range ended {
		h.Until = min(h.Until, at)
	}
	return holds
}

// byLock sorts the holds of each lock by their arrival.
func byLock(holds []*Hold) map[string][]*Hold {
	locks := map[string][]*Hold{}
	for _, h := range holds {
		locks[h.Lock] = append(locks[h.Lock], h)
	}
	for _, of := range locks {
		slices.SortFunc(of, func(a, b *Hold) int { return int(a.Granted - b.Granted) })
	}
	return locks
}

// checkTrust compares each grant with what was trusted when it arrived.
func (rep *Report) checkTrust(holds []*Hold, r Rules) {
	var last *Hold // the one of those before whose trust reaches furthest
	for _, h := range holds {
		switch {
		case last == nil || h.Granted >= last.end() || h.end() <= h.Granted:
		case r.excuses(h.Granted):
			rep.Excused++
		default:
			rep.violated(h.Granted, h.Lock, "two trusted it at once: %s and %s", last, h)
		}
		if last == nil || h.end() > last.end() {
			last = h
		}
	}
}

// excuses tells whether two may trust one lock at that instant.
func (r Rules) excuses(at time.Duration) bool {
	return slices.ContainsFunc(r.Restored, func(s Stretch) bool { return at >= s.From && at <= s.Until+r.TTL })
}

// checkTokens compares each grant's token with those of the grants that had arrived before it was asked for.
func (rep *Report) checkTokens(holds []*Hold) {
	seen := map[uint64]*Hold{}
	for _, h := range holds {
		if other := seen[h.Token]; other != nil {
			rep.violated(h.Granted, h.Lock, "one token was given twice: %s and %s", other, h)
		}
		seen[h.Token] = h
	}
	asked := slices.Clone(holds)
	slices.SortFunc(asked, func(a, b *Hold) int { return int(a.Asked - b.Asked) })
	var highest *Hold
	arrived := 0
	for _, h := range asked {
		for ; arrived < len(holds) && holds[arrived].Granted < h.Asked; arrived++ {
			if highest == nil || holds[arrived].Token > highest.Token {
				highest = holds[arrived]
			}
		}
		if highest != nil && h.Token < highest.Token {
			rep.violated(h.Granted, h.Lock, "the token fell: %s after %s", h, highest)
		}
	}
}
