package lease

import (
	"math"
	"time"
)

// The pauses between looks at a lock whose store does not wake its waiters, on average.
const (
	// firstPause is that of one who has just met a holder: a lock that few want is handed over within about as much.
	firstPause = 200 * time.Millisecond

	// nearPause is the shortest where a lease's end is near, or past and not seen, as with a clock that stands still.
	nearPause = 350 * time.Millisecond

	// minPoll and maxPoll bound that of one who waits for a holder that stays.
	minPoll = 600 * time.Millisecond
	maxPoll = time.Second

	// crowdPart is the part of a TTL that bounds that of one of a crowd, and so for how long the last of a crowd can miss
	// that all others have left.
	crowdPart = 4

	// longWait is from when on one who has never had the lock looks more often.
	longWait = time.Minute

	// maxPace keeps a pace from growing where that has no effect.
	maxPace = 20 * time.Second
)

// poll is the longest pause between looks at a lock that stays with its holder.
func poll(ttl time.Duration) time.Duration { return min(max(ttl/10, minPoll), maxPoll) }

// sight is what a client knows when it has just looked at a lock, or when it has just had it.
type sight struct {
	age  time.Duration // for how long it has seen the present holder; 0: that is a new one
	same bool          // the grant is that of the last look
	hold time.Duration // how long a grant lasts, by its own holds and by what it has seen; 0: unknown
	pace time.Duration // of one who sees the lock change hands between its looks; 0: it has not
	own  bool          // the last grant was its own,
	idle time.Duration // which ended so long ago,
	vain int           // and it has so often let others go first without effect
}

// pause is how long to wait, on average, before the next look: at a lock that stays with its holder as long as that has had it
// and half as much again, up to poll; at one that is handed round by its pace.
func (s sight) pause(ttl time.Duration) time.Duration {
	age := s.age
	if s.own { // as a waiter does that has seen it all the time
		age = s.hold
	}
	still := min(max(age*3/2, s.hold/10, firstPause)<<(2*s.vain), poll(ttl))
	if s.same {
		return still
	}
	return max(still, min(s.pace, max(ttl/crowdPart, poll(ttl))))
}

// freeTime sets how long a lock that a crowd wants stays free: the paces balance where that is some tenths of a second.
const freeTime = 900 * time.Millisecond

// slower is the pace after a look in vain, faster that after a grant. gain is how far they go.
//
// Nobody knows how many wait, but whoever looks finds the lock free for the same part of the time. So the paces of all settle
// where that part balances looks in vain and grants. A long pace grows by a smaller part than a short one and shrinks by
// the same, so that one who is slow by chance does not stay so.
func slower(pace, hold time.Duration, gain float64) time.Duration {
	pace, hold = max(pace, firstPause), max(hold, freeTime/9)
	step := gain * float64(freeTime) / float64(hold) * math.Sqrt(float64(pace)*float64(time.Second))
	return min(pace+time.Duration(step), maxPace)
}

func faster(pace time.Duration, gain float64) time.Duration {
	return max(pace-time.Duration(gain*float64(pace)), firstPause)
}

// due is the pause of one who has waited for a while: twice its pace if it has just begun, and the less the longer it has waited
// in comparison with what is usual, so that nobody is passed over for long.
func due(pace, waited, usual time.Duration) time.Duration {
	if pace == 0 {
		return 0
	}
	part := max(2*float64(waited)/float64(usual), 0.5)
	if usual == 0 { // its first wait
		part = max(float64(waited)/float64(longWait), 1)
	}
	return max(time.Duration(float64(pace)/part), firstPause)
}

// within is a pause of about d that does not pass the end of the lease unduly, if that is known. Waiters look at a dead lock one
// after the other, not all at its end.
func within(d, end time.Duration) time.Duration {
	pause := Jitter(d, 0.5)
	if end > 0 && end < pause {
		return max(end+Jitter(min(d, time.Second)/8, 1), nearPause)
	}
	return pause
}

// smooth moves the average old a part of the way to d. 0 is none yet.
func smooth(old, d time.Duration) time.Duration {
	if old == 0 {
		return d
	}
	return old + (d-old)/4
}
