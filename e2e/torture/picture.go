//go:build unix

package main

import (
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/check"
	"github.com/cloudlease/cloudlease/e2e/torture/history"
)

// The measures of the picture.
const (
	perSecond = 40 // pixels
	rowHeight = 26
	margin    = 110
	around    = 30 * time.Second // what is shown before the first violation
	longest   = 5 * time.Minute  // what is shown at most
)

// draw writes a picture of the time around the first violation and after it: for every lock and worker when it trusted its lease and with which
// token, what stood in each worker's way, and where the violations are. It is for a browser: every bar tells more when
// pointed at.
func draw(path string, rep check.Report, events []history.Event) error {
	p := &picture{until: longest}
	for _, v := range rep.Violations { // the first that has an instant
		if v.At > 0 {
			p.from = max(0, v.At-around)
			p.until = p.from + longest
			break
		}
	}
	p.rows(rep, events)
	for _, h := range rep.Holds {
		p.bar(h.Lock+" "+h.Worker, "#4a7fb5", h.Granted, max(h.Until, h.Acted), fmt.Sprintf("token %d", h.Token), h.String())
	}
	for _, e := range events {
		if e.Kind == history.Obstacle {
			p.bar("faults "+e.Worker, "#c9a227", e.At, e.Until, e.Fault, e.Fault)
		}
	}
	for _, v := range rep.Violations {
		p.mark(v)
	}
	return os.WriteFile(path, []byte(p.svg()), 0o600)
}

type picture struct {
	from, until time.Duration
	labels      []string
	body        strings.Builder
}

// rows gives every lock and worker a row, and every worker one for its faults.
func (p *picture) rows(rep check.Report, events []history.Event) {
	seen := map[string]bool{}
	add := func(label string) {
		if !seen[label] {
			seen[label] = true
			p.labels = append(p.labels, label)
		}
	}
	for _, h := range rep.Holds {
		add(h.Lock + " " + h.Worker)
	}
	for _, e := range events {
		if e.Kind == history.Obstacle {
			add("faults " + e.Worker)
		}
	}
	slices.SortFunc(p.labels, func(a, b string) int { // the faults last
		fa, fb := strings.HasPrefix(a, "faults "), strings.HasPrefix(b, "faults ")
		if fa != fb {
			if fa {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
}

func (p *picture) x(at time.Duration) float64 {
	return margin + (min(max(at, p.from), p.until)-p.from).Seconds()*perSecond
}

func (p *picture) y(label string) int { return (slices.Index(p.labels, label) + 1) * rowHeight }

func (p *picture) bar(label, color string, from, until time.Duration, text, more string) {
	if until < p.from || from > p.until || until <= from {
		return
	}
	x, w := p.x(from), max(p.x(until)-p.x(from), 1)
	_, _ = fmt.Fprintf(&p.body, `<g><title>%s</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity="0.7"/>`,
		html.EscapeString(more), x, p.y(label), w, rowHeight-6, color)
	_, _ = fmt.Fprintf(&p.body, `<text x="%.1f" y="%d">%s</text></g>`+"\n", x+2, p.y(label)+14, html.EscapeString(text))
}

func (p *picture) mark(v check.Violation) {
	if v.At < p.from || v.At > p.until {
		return
	}
	_, _ = fmt.Fprintf(&p.body, `<g><title>%s</title><line x1="%.1f" x2="%.1f" y1="0" y2="%d" stroke="#c0392b" stroke-width="2"/></g>`+"\n",
		html.EscapeString(v.Lock+": "+v.What), p.x(v.At), p.x(v.At), (len(p.labels)+1)*rowHeight)
}

func (p *picture) svg() string {
	var b strings.Builder
	height := (len(p.labels) + 2) * rowHeight
	_, _ = fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="sans-serif" font-size="10">`+"\n",
		p.x(p.until)+margin, height)
	_, _ = fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for _, label := range p.labels {
		_, _ = fmt.Fprintf(&b, `<text x="4" y="%d">%s</text>`+"\n", p.y(label)+14, html.EscapeString(label))
	}
	for at := time.Duration(0); p.from+at <= p.until; at += time.Second {
		x := p.x(p.from + at)
		_, _ = fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#ddd"/>`, x, x, rowHeight, height-rowHeight)
		_, _ = fmt.Fprintf(&b, `<text x="%.1f" y="12">%.0f s</text>`+"\n", x, (p.from + at).Seconds())
	}
	b.WriteString(p.body.String())
	b.WriteString("</svg>\n")
	return b.String()
}
