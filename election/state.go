package election

import (
	"errors"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// State is what a candidate does.
type State string

// The states of a candidate.
const (
	Observing    State = "observing"     // Run was not called
	Standing     State = "standing"      // waits to be elected: follows another leader, or has none and asks
	Leading      State = "leading"       // lead runs
	Stopping     State = "stopping"      // lead's context has ended; it is to return
	StandingBack State = "standing back" // lets others lead first
	Overrunning  State = "overrunning"   // lead has not returned within its limit
	Stopped      State = "stopped"       // Run has returned
)

// phase is a state, since when, and within which time it is to be left; 0: whenever.
type phase struct {
	state  State
	since  lease.Reading
	within time.Duration
}

// slack is what a phase may take longer than it should before the loop counts as stuck.
const slack = 5 * time.Second

// standingWithin is the longest that one turn of standing takes: an attempt, its pauses, and a wait or a pause.
func (e *Election) standingWithin() time.Duration {
	return 3*e.c.Options().CallTimeout + 2*e.ttl + slack
}

func (e *Election) enter(s State, within time.Duration) {
	now := e.c.Clock()()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.phase = phase{state: s, since: now, within: within}
}

func (e *Election) end(err error) {
	if !errors.Is(err, ErrOverrun) {
		e.enter(Stopped, 0)
	}
}

// stood notes how the last try to stand went.
func (e *Election) stood(err error) {
	if errors.Is(err, lease.ErrHeld) { // its context ended while it waited
		err = nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failure = err
}

// Status is what a candidate knows of itself. It is right even if this process has just woken from a pause.
type Status struct {
	Name   string
	State  State
	Holder string        // this candidate, as others see it
	Token  lease.Token   // of the present term; 0 if this candidate does not lead
	Left   time.Duration // to the deadline of the present term, if it is not renewed
	Leader Leader        // as last seen; make a request with Election.Leader
	Err    error         // of the last try to stand; nil after a good one
	Fault  string        // why the candidate is not healthy; empty if it is
}

// Status tells the candidate's state. It makes no request and never blocks.
func (e *Election) Status() Status {
	now := e.c.Clock()()
	self, leads := e.self()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{
		Name: e.name, State: e.phase.state, Holder: e.c.Holder(), Leader: e.seen.leader, Err: e.failure, Fault: e.faultLocked(now),
	}
	if leads {
		g := e.term.l.Grant()
		s.Leader, s.Token, s.Left = self, self.Token, max(g.Trust-e.margin-now.Fast(g.Sent), 0)
	}
	return s
}

// faultLocked says what is wrong with the candidate. A store that is out is no fault of it: ending processes does not mend it.
func (e *Election) faultLocked(now lease.Reading) string {
	p := e.phase
	if (p.state == Leading || p.state == Stopping) && e.term.l.Err() != nil && e.hardLimit(e.term, now) <= 0 {
		return "lead has not returned although its term is over"
	}
	switch {
	case p.state == Overrunning && !e.term.over():
		return ErrOverrun.Error()
	case p.state == Overrunning || p.state == Stopped:
		return "this candidate no longer stands"
	case p.within > 0 && now.Fast(p.since) > p.within:
		return "the loop is stuck"
	}
	return ""
}
