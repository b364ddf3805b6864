package leasetest

import (
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// markBook is of the occurrences of a job.
type markBook struct {
	asked     int64 // the newest that an attempt was ever sent for
	finishing int64 // the newest that a release was ever sent for
	started   []started
	finished  []occurrenceTold
}

// started is an occurrence that was granted to an attempt.
type started struct {
	occurrenceTold
	attempt string
}

type occurrenceTold struct {
	at         time.Time
	occurrence int64
}

func (m *markBook) asks(mark *lease.Mark) {
	if mark != nil {
		m.asked = max(m.asked, mark.Occurrence)
	}
}

func (m *markBook) finishes(marks *lease.Marks) {
	if marks != nil {
		m.finishing = max(m.finishing, marks.Finished)
	}
}

// checkGrant looks for an occurrence that is started although it, or a later one, was finished, or was started before by a run
// that may be once at most.
func (m *markBook) checkGrant(e *env, c storeCall) {
	mark := c.asked.Mark
	if mark == nil {
		return
	}
	for _, f := range m.finished {
		if f.at.Before(c.began) && f.occurrence >= mark.Occurrence {
			e.Errorf("occurrence %d of %q is started after occurrence %d was finished", mark.Occurrence, c.name, f.occurrence)
		}
	}
	for _, s := range m.started {
		again := s.attempt != c.asked.Attempt && (s.occurrence == mark.Occurrence || s.at.Before(c.began) && s.occurrence > mark.Occurrence)
		if mark.AtMostOnce && again {
			e.Errorf("occurrence %d of %q is started, once at most, after occurrence %d was started by another", mark.Occurrence, c.name, s.occurrence)
		}
	}
	m.started = append(m.started, started{occurrenceTold{c.ended, mark.Occurrence}, c.asked.Attempt})
}

// checkPassed looks for an occurrence that is refused although nobody can have started or finished it or a later one.
func (m *markBook) checkPassed(e *env, c storeCall) {
	mark := c.asked.Mark
	reason := m.finishing
	if mark != nil && mark.AtMostOnce {
		reason = max(reason, m.asked) // this attempt's own first try too
	}
	if mark == nil || reason < mark.Occurrence {
		e.Errorf("occurrence %d of %q is refused as passed, and no later one than %d was ever finished", mark.Occurrence, c.name, reason)
	}
}
