//go:build unix

package check

import (
	"slices"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
)

// span is a stretch of time.
type span struct{ from, until time.Duration }

// spans are stretches in order, without overlaps.
type spans []span

// union puts stretches in order and joins those that touch.
func union(all []span) spans {
	slices.SortFunc(all, func(a, b span) int { return int(a.from - b.from) })
	var joined spans
	for _, s := range all {
		if s.until <= s.from {
			continue
		}
		if n := len(joined); n > 0 && s.from <= joined[n-1].until {
			joined[n-1].until = max(joined[n-1].until, s.until)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// minus is what of s is not in off.
func (s spans) minus(off spans) spans {
	var left spans
	for _, one := range s {
		for _, o := range off {
			if o.until <= one.from || o.from >= one.until {
				continue
			}
			if o.from > one.from {
				left = append(left, span{one.from, o.from})
			}
			one.from = o.until
		}
		if one.from < one.until {
			left = append(left, one)
		}
	}
	return left
}

// within is how much of s lies between from and until.
func (s spans) within(from, until time.Duration) time.Duration {
	var sum time.Duration
	for _, one := range s {
		sum += max(0, min(one.until, until)-max(one.from, from))
	}
	return sum
}

// split cuts s at instants, which are in order.
func split(s span, at []time.Duration) []span {
	var parts []span
	for _, cut := range at {
		if cut > s.from && cut < s.until {
			parts = append(parts, span{s.from, cut})
			s.from = cut
		}
	}
	return append(parts, s)
}

// waits are when each worker was asking for each lock, by lock and worker.
func waits(events []history.Event) map[string]map[string][]span {
	asking := map[string]map[string][]span{}
	open := map[string]history.Event{} // by worker
	for _, e := range events {
		begun, waiting := open[e.Worker]
		switch e.Kind {
		case history.Granted, history.GaveUp, history.Started:
			if waiting {
				if asking[begun.Lock] == nil {
					asking[begun.Lock] = map[string][]span{}
				}
				asking[begun.Lock][e.Worker] = append(asking[begun.Lock][e.Worker], span{begun.At, e.At})
				delete(open, e.Worker)
			}
		case history.Waiting:
			open[e.Worker] = e
		default:
		}
	}
	return asking
}

// ghosts are, by lock, when a request that nobody waits for any more may have taken it: its sender gave up not knowing, or was
// killed while it asked. Such a grant ends as a dead holder's does.
func ghosts(events []history.Event, r Rules) map[string][]time.Duration {
	at := map[string][]time.Duration{}
	open := map[string]history.Event{} // by worker
	for _, e := range events {
		switch e.Kind {
		case history.Waiting:
			open[e.Worker] = e
		case history.Granted:
			delete(open, e.Worker)
		case history.GaveUp:
			delete(open, e.Worker)
			if e.Outcome == history.Unknown {
				at[e.Lock] = append(at[e.Lock], e.At+r.Delay)
			}
		case history.Started:
			if asked, ok := open[e.Worker]; ok {
				at[asked.Lock] = append(at[asked.Lock], e.At+r.Delay)
				delete(open, e.Worker)
			}
		default:
		}
	}
	return at
}

// restarts are, by lock, when the bound begins anew.
func restarts(events []history.Event, r Rules) map[string][]time.Duration {
	anew := ghosts(events, r)
	for lock := range waits(events) {
		for _, e := range events {
			if r.Anew && e.Kind == history.Obstacle && e.Worker == "" {
				anew[lock] = append(anew[lock], e.Until)
			}
		}
		slices.Sort(anew[lock])
	}
	return anew
}

// obstacles are when each worker could not be expected to get anywhere; under "" those of all.
func obstacles(events []history.Event, settle time.Duration) map[string][]span {
	off := map[string][]span{}
	for _, e := range events {
		if e.Kind == history.Obstacle || e.Kind == history.Stalled {
			off[e.Worker] = append(off[e.Worker], span{e.At, e.Until + settle})
		}
	}
	return off
}

// ableWaits are, for each lock, when somebody was asking for it with no obstacle in the way.
func ableWaits(events []history.Event, settle time.Duration) map[string]spans {
	off := obstacles(events, settle)
	able := map[string]spans{}
	for lock, workers := range waits(events) {
		var all []span
		for worker, asked := range workers {
			all = append(all, union(asked).minus(union(slices.Concat(off[worker], off[""])))...)
		}
		able[lock] = union(all)
	}
	return able
}

// checkProgress looks at how long each lock stayed without a holder after the last good renewal of the one before.
func (rep *Report) checkProgress(events []history.Event, locks map[string][]*Hold, r Rules) {
	able, anew := ableWaits(events, r.Settle), restarts(events, r)
	var end time.Duration
	for _, e := range events {
		end = max(end, e.At)
	}
	for lock, holds := range locks {
		for i, h := range holds {
			free, until := h.Renewed, end
			if h.Freed {
				free = h.Left
			}
			if i+1 < len(holds) {
				until = holds[i+1].Granted
			}
			waited := time.Duration(0)
			for _, s := range split(span{free, until}, anew[lock]) {
				waited = max(waited, able[lock].within(s.from, s.until))
			}
			rep.LongestGap = max(rep.LongestGap, waited)
			if waited > r.Bound {
				rep.violated(until, lock, "nobody got it for %.1f s after the last renewal or the release of %s, although somebody able was asking for it for %.1f s of them, more than the bound of %.0f s",
					(until - free).Seconds(), h, waited.Seconds(), r.Bound.Seconds())
			}
			if !h.Freed && i+1 < len(holds) {
				rep.TakeOvers = append(rep.TakeOvers, TakeOver{Lock: lock, From: h, To: holds[i+1], Took: until - free, Able: waited})
			}
		}
	}
}
