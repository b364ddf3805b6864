//go:build unix

package proxy

import (
	"strings"
	"sync/atomic"
	"time"
)

// Kind says what a fault does to a request.
type Kind string

// The kinds of faults.
const (
	DelayBefore Kind = "delay before" // held, then passed on, also when its sender has gone: a late effect
	DelayAfter  Kind = "delay after"  // passed on, the answer held
	DropAnswer  Kind = "drop answer"  // passed on, then the connection is cut
	Fail        Kind = "fail"         // answered with the service's error, not passed on
	Throttle    Kind = "throttle"     // answered with the service's request to slow down, not passed on
	BlackHole   Kind = "black hole"   // swallowed, never answered
	Reset       Kind = "reset"        // the connection is reset, nothing passed on
	Partition   Kind = "partition"    // requests and answers that are on their way are swallowed
	WrongDate   Kind = "wrong date"   // passed on, the Date of the answer shifted
	Duplicate   Kind = "duplicate"    // passed on, and once more later
	StaleRead   Kind = "stale read"   // a read that did not ask for consistency gets an older answer
)

// Rule says which requests a fault hits.
type Rule struct {
	Kind   Kind
	Op     string        // the beginning of the operation's name; empty: every one
	Chance float64       // of each matching request; 0: every one
	Delay  time.Duration // of DelayBefore, DelayAfter and Duplicate
	Shift  time.Duration // of WrongDate
}

func (r Rule) matches(req Request) bool {
	if !strings.HasPrefix(req.Op, r.Op) {
		return false
	}
	switch r.Kind {
	case StaleRead:
		return req.Read && !req.Consistent
	case Duplicate:
		return req.Repeatable
	default:
		return true
	}
}

// Active is a rule in force.
type Active struct {
	Rule

	p    *Proxy
	hits atomic.Int64
}

// Hits is how many requests the rule has hit.
func (a *Active) Hits() int { return int(a.hits.Load()) }

// Stop ends the rule and returns how many requests it has hit. Requests that it holds stay held.
func (a *Active) Stop() int {
	a.p.remove(a)
	return a.Hits()
}

// Request is what a service's adapter knows of a request.
type Request struct {
	Op         string // such as "locks.UpdateItem"
	Key        string // what is read or written
	Shown      string // what the log tells of Key, where that has secrets; empty: Key
	Read       bool   // it changes nothing
	Consistent bool   // it asks for the newest state, or always gets it
	Repeatable bool   // a second delivery is part of what the service's clients must cope with
}

// Entry is one request in the log.
type Entry struct {
	At     time.Duration `json:"at"`
	From   string        `json:"from"`
	Op     string        `json:"op"`
	Key    string        `json:"key,omitempty"`
	Fault  Kind          `json:"fault,omitempty"`
	Status int           `json:"status,omitempty"` // of the service's answer; 0: none
	Took   time.Duration `json:"took"`             // until the answer was sent or given up
	Served time.Duration `json:"served,omitempty"` // the service's part of it
	Err    string        `json:"err,omitempty"`
}
