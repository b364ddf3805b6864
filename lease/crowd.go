package lease

import (
	"sync"
	"time"
)

const (
	// maxCrowds bounds for how many locks a client remembers who else wants them. Forgetting costs a few looks.
	maxCrowds = 1024

	// staleAfter is how long what was learned of a lock is of use, beside four pauses.
	staleAfter = 10 * time.Second

	// resumeWithin is how soon a waiter comes back from an attempt in vain.
	resumeWithin = 5 * time.Second

	// A client that takes a lock again and again, at once, does not learn of those who wait: nobody tells a holder. It lets them
	// have a look when it has done so for firstSpell, and, while nobody comes, at last every maxSpell.
	firstSpell = 5 * time.Second
	maxSpell   = time.Minute

	// chance is for how long a lock may be held, in comparison with the time that it was free before, so that those who look at
	// some instant soon find it free, and need no pause.
	chance = 20

	// patience is how often a client lets those that it has met go first, in vain, before it takes them for gone.
	patience = 3
)

// crowds is what a client has seen of those who want the same locks. The zero value is ready for use.
type crowds struct {
	mu    sync.Mutex
	locks map[string]*crowd
}

// crowd is what is known of one lock. Instants are on the monotonic clock.
type crowd struct {
	waiting int           // how many wait here
	open    bool          // the client waits for its next grant,
	asked   time.Duration // since then
	touched time.Duration // when this was last of use

	met    bool          // a holder was seen in this wait,
	told   bool          // and the service said which:
	holder string        // this one at last,
	since  time.Duration // from then on,
	token  Token         // with this grant at last,
	grant  time.Duration // which was first seen then
	lasted time.Duration // the longest that one grant was seen

	pace  time.Duration // see sight
	known int           // how many looks and grants have shaped it
	wait  time.Duration // how long the client's waits last, smoothed
	hold  time.Duration // and its holds

	mine   Token         // of its own last grant
	gave   bool          // it was released,
	freed  time.Duration // at that instant,
	alone  bool          // and nobody was granted the lock since
	others int           // how often the client will let others go first in vain; 0: it knows of none
	busy   time.Duration // how long it has had the lock, again and again, without a chance for others
	spell  time.Duration // how long it may
}

// enter begins a wait, or goes on with one that was interrupted by an attempt.
func (cs *crowds) enter(name string, now Reading) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.locks[name]
	if c == nil || c.waiting == 0 && now.Mono-c.touched > 4*c.pace+staleAfter {
		c = cs.addLocked(name)
	}
	c.waiting++
	if !c.open || c.waiting == 1 && now.Mono-c.touched > resumeWithin {
		c.begin(now, true)
	}
}

func (cs *crowds) addLocked(name string) *crowd {
	if cs.locks == nil {
		cs.locks = map[string]*crowd{}
	}
	for other, c := range cs.locks {
		if len(cs.locks) < maxCrowds {
			break
		}
		if c.waiting == 0 {
			delete(cs.locks, other)
		}
	}
	c := &crowd{spell: firstSpell}
	cs.locks[name] = c
	return c
}

// leave ends a wait, or interrupts it for an attempt.
func (cs *crowds) leave(name string, now Reading) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.locks[name]
	c.waiting--
	c.touched = now.Mono
}

// saw takes in that h describes the lock now, and says what a waiter knows.
func (cs *crowds) saw(name string, h *HeldError, now Reading) sight {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.locks[name]
	told := h.Holder != "" || h.Token != 0 // who is overtaken may not be told by whom
	same := c.met && h.Token == c.token
	if !same && (told || !c.met) {
		c.token, c.grant = h.Token, now.Mono
	}
	c.lasted = max(c.lasted, now.Mono-c.grant)
	hold, waited := max(c.hold, c.lasted), now.Mono-c.asked
	switch {
	case !c.met || told && (h.Holder != c.holder || h.Holder == "" && !same): // it has changed hands, as far as the service tells
		if c.told {
			c.pace = slower(c.pace, hold, c.gain())
		}
		c.holder, c.since = h.Holder, now.Mono
	case told && !same && c.pace > 0: // one takes it again and again: that is no crowd
		c.pace = faster(c.pace, c.gain())
	}
	c.told = c.told || told
	c.met, c.alone = true, false
	return sight{age: now.Mono - c.since, same: same, hold: hold, pace: due(c.pace, waited, c.wait)}
}

// gain is how far one look or grant moves the pace: far at first.
func (c *crowd) gain() float64 {
	c.known++
	return max(1/float64(1+c.known), 0.1)
}

// sawFree takes in that the lock was free, and the token of its last grant.
func (cs *crowds) sawFree(name string, last Token) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.locks[name]
	c.alone = c.mine == last
}

// granted takes in that this client was granted the lock.
func (cs *crowds) granted(name string, token Token, now Reading) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.locks[name]
	if c == nil {
		return
	}
	switch {
	case c.alone: // it let others go first in vain
		c.others = max(c.others-1, 0)
		c.spell, c.busy, c.freed = min(2*c.spell, maxSpell), 0, now.Mono
	case c.open:
		c.others, c.spell = patience, firstSpell
		c.pace, c.wait = faster(c.pace, c.gain()), smooth(c.wait, now.Mono-c.asked)
	}
	c.mine, c.gave, c.alone = token, false, false
	c.begin(now, c.waiting > 0)
}

// released takes in that this client released the lock, which it had held for a time.
func (cs *crowds) released(name string, held time.Duration, now Reading) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.locks[name]
	if c == nil {
		c = cs.addLocked(name)
	}
	idle := now.Mono - held - c.freed
	if idle > maxPoll { // others have had a look
		c.spell = firstSpell
	}
	c.busy = c.without(idle) + held
	c.hold = smooth(c.hold, held)
	c.gave, c.freed, c.touched = true, now.Mono, now.Mono
}

// without is what is left of busy after the lock was free for a time.
func (c *crowd) without(idle time.Duration) time.Duration {
	if idle <= 0 {
		return c.busy
	}
	return c.busy - min(c.busy, chance*min(idle, maxSpell))
}

// yields tells whether the client should let others go first before it asks for a lock that it has just released, and what it knows.
// Its next wait begins with it.
func (cs *crowds) yields(name string, now Reading) (sight, bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.locks[name]
	if c == nil || !c.gave {
		return sight{}, false
	}
	s := sight{hold: c.hold, pace: 2 * c.pace, own: true, idle: now.Mono - c.freed, vain: patience - c.others}
	switch {
	case c.waiting > 0: // here are others, in a wait that goes on
		s.vain = 0
		return s, true
	case c.others == 0:
		if c.without(s.idle) < c.spell {
			return s, false
		}
		s.idle -= maxPoll / 4 // longer than a waiter's usual pause, so that once is nearly always enough
	}
	c.begin(now, true)
	c.alone = true // until others are seen to have had the lock since
	return s, true
}

// begin forgets what was seen in the last wait, and begins another if open.
func (c *crowd) begin(now Reading, open bool) {
	c.open, c.asked, c.touched = open, now.Mono, now.Mono
	c.met, c.told, c.holder, c.token, c.lasted = false, false, "", 0, 0
}
