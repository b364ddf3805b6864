//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// picture tells what happened as a picture. Leases and writes come from the store's record; deliveries, kills and stops from
// whoever did them.
func (w *world) picture() Picture {
	writes := w.recorder.Writes()
	holds := Holds(writes, locksTable)
	short := shortener(holds)
	p := Picture{
		Title: "A paused loser cannot overwrite the winner",
		About: "Five processes and the results table over time. a: a job is delivered to five processes at once, one runs. " +
			"b: a process is killed in mid-run, another takes over with a higher token. c: a process is stopped in front of " +
			"its write until another has taken over and written; it wakes, and its write with the older token is refused.",
		Source: "drawn by make demo from the store's own record",
		Note:   fmt.Sprintf("tokens: … stands for %s", short.cut),
	}
	from := time.Duration(0)
	for i, s := range []Scene{
		{Head: "a. Five at once", Body: "one runs, the other four skip"},
		{Head: "b. Killed in mid-run", Body: "the next takes over with a higher token; one result"},
		{Head: "c. Stopped past its lease", Body: "another takes over and writes; the late write has the older token and is refused"},
	} {
		s.From, s.To = from, w.since(w.scenes[i])
		from = s.To
		p.Scenes = append(p.Scenes, s)
	}
	p.Span = p.withMargin(from)
	p.Scenes[len(p.Scenes)-1].To = p.Span
	for _, proc := range w.procs {
		l := w.lane(proc, holds, short)
		for _, wr := range writes {
			token := reportOf(wr.Value).Token.String()
			if wr.Table == resultsTable && w.owner(holderOf(holds, token)) == proc {
				kind := Stored
				if wr.Verdict != Took {
					kind = Refused
				}
				l.Marks = append(l.Marks, Mark{At: w.since(wr.At), Kind: kind, Label: short.of(token)})
			}
		}
		slices.SortFunc(l.Marks, func(a, b Mark) int { return int(a.At - b.At) })
		p.Lanes = append(p.Lanes, l)
	}
	return p
}

// holderOf is who had the lease with a token.
func holderOf(holds []Hold, token string) string {
	for _, h := range holds {
		if h.Token == token {
			return h.Holder
		}
	}
	return ""
}

func (w *world) since(at time.Time) time.Duration { return at.Sub(w.began) }

// lane is what happened to one process.
func (w *world) lane(proc *process, holds []Hold, short shortened) Lane {
	l := Lane{Name: "process " + proc.name}
	for _, a := range w.acts {
		if a.to != proc {
			continue
		}
		at := w.since(a.at)
		l.Marks = append(l.Marks, Mark{At: at, Kind: a.kind})
		switch a.kind {
		case Killed:
			l.Ended = at
			l.Captions = append(l.Captions, Caption{At: at, Text: "killed, gives nothing back"})
		case Stopped:
			l.Captions = append(l.Captions, Caption{At: at, Text: "stopped"})
			l.Frozen = append(l.Frozen, Bar{From: at})
		case Woken:
			l.Captions = append(l.Captions, Caption{At: at + 2*time.Second, Text: "wakes, writes: refused", Before: true})
			l.Frozen[len(l.Frozen)-1].To = at
		case Skipped, Stored, Refused:
		}
	}
	for i, h := range holds {
		if w.owner(h.Holder) != proc {
			continue
		}
		w.addLease(&l, h, short)
		if h.TookOver {
			text := fmt.Sprintf("takes over after %.1f s", h.From.Sub(w.lastAct(h.From)).Seconds())
			l.Captions = append(l.Captions, Caption{At: w.since(holds[i].Until), Text: text, Before: true})
		}
	}
	w.addDeliveries(&l, proc, holds)
	slices.SortFunc(l.Captions, func(a, b Caption) int { return int(a.At - b.At) })
	return l
}

// addLease draws a lease: whole while its holder runs, the rest apart.
func (w *world) addLease(l *Lane, h Hold, short shortened) {
	from, until := w.since(h.From), w.since(h.Until)
	runs := until
	for _, m := range l.Marks {
		if (m.Kind == Killed || m.Kind == Stopped) && m.At > from && m.At < until {
			runs = m.At
		}
	}
	l.Leases = append(l.Leases, Bar{From: from, To: runs, Label: short.of(h.Token)})
	if runs < until {
		l.Left = append(l.Left, Bar{From: runs, To: until})
	}
}

// addDeliveries draws the deliveries that waited, and those that found nothing to do.
func (w *world) addDeliveries(l *Lane, proc *process, holds []Hold) {
	for _, d := range w.deliveries {
		if d.to != proc {
			continue
		}
		end, skipped := d.until, true
		for _, h := range holds {
			if h.Day == d.day && w.owner(h.Holder) == proc && h.From.Before(d.until) {
				end, skipped = h.From, false
			}
		}
		if end.Sub(d.from) > 300*time.Millisecond {
			l.Waits = append(l.Waits, Bar{From: w.since(d.from), To: w.since(end)})
		}
		if skipped {
			l.Marks = append(l.Marks, Mark{At: w.since(d.until), Kind: Skipped})
		}
	}
}

// lastAct is when the newest thing before an instant was done to a process.
func (w *world) lastAct(before time.Time) time.Time {
	at := before
	for _, a := range w.acts {
		if a.at.Before(before) {
			at = a.at
		}
	}
	return at
}

// shortened writes tokens without the digits that all of them begin with.
type shortened struct{ cut string }

// shortener leaves at least five digits.
func shortener(holds []Hold) shortened {
	if len(holds) == 0 {
		return shortened{}
	}
	cut := holds[0].Token[:max(0, len(holds[0].Token)-5)]
	for _, h := range holds {
		for !strings.HasPrefix(h.Token, cut) {
			cut = cut[:len(cut)-1]
		}
	}
	return shortened{cut}
}

func (s shortened) of(token string) string { return "…" + strings.TrimPrefix(token, s.cut) }
