package main

import (
	"fmt"
	"time"
)

// Picture is what happened, ready to be drawn: one lane per process, and below them what the store kept. Instants are
// counted from the start of the picture.
type Picture struct {
	Title  string
	About  string // the story in words, for those who cannot see it
	Span   time.Duration
	Scenes []Scene
	Lanes  []Lane
	Source string // beside the title: where the picture comes from
	Note   string // beside the legend
}

// Scene is one part of the story. The scenes follow each other in time.
type Scene struct {
	From, To   time.Duration
	Head, Body string
}

// Lane is one process.
type Lane struct {
	Name     string
	Waits    []Bar // deliveries that wait for another's lease
	Leases   []Bar // while the holder lives and runs
	Left     []Bar // leases whose holder was killed or stopped: the store still honors them
	Frozen   []Bar
	Ended    time.Duration // when the process was killed; 0: never
	Marks    []Mark
	Captions []Caption
}

// Bar is a span of time with a label.
type Bar struct {
	From, To time.Duration
	Label    string
}

// MarkKind says what happened at an instant.
type MarkKind int

// The kinds of marks.
const (
	Skipped MarkKind = iota // a delivery was answered without a run
	Killed
	Stopped
	Woken
	Stored  // a write that the store took
	Refused // a write that the store refused
)

// Mark is something that happened at an instant. That of a write bears its token.
type Mark struct {
	At    time.Duration
	Kind  MarkKind
	Label string
}

// Caption is a short text above a lane. It begins at its instant, or ends there if Before is set.
type Caption struct {
	At     time.Duration
	Text   string
	Before bool
}

// The measures of the picture, in pixels. It is drawn 800 wide, so that its text has its own size on a README page.
const (
	pictureWidth = 800.0
	plotLeft     = 92.0
	plotRight    = pictureWidth - 14
	titleLine    = 29.0
	sceneTop     = 44.0
	rowHeight    = 43.0
	barTop       = 18.0 // within a row
	barHeight    = 19.0
	barMiddle    = barTop + barHeight/2
	signWidth    = 20.0
	legendPitch  = 21.0
	lineHeight   = 15.0
)

// drawing is a picture on its way to paper.
type drawing struct {
	Picture
	*canvas
	lanesTop, storeTop, axisTop float64
}

// SVG draws p.
func (p Picture) SVG() []byte {
	d := &drawing{Picture: p}
	heads := 0
	for _, s := range p.Scenes {
		heads = max(heads, len(wrap(s.Head, 13, d.width(s)))+len(wrap(s.Body, 12, d.width(s))))
	}
	d.lanesTop = sceneTop + 10 + float64(heads)*lineHeight
	d.storeTop = d.lanesTop + float64(len(p.Lanes))*rowHeight + 6
	d.axisTop = d.storeTop + rowHeight + 4
	legendTop := d.axisTop + 44
	height := legendTop + 3*legendPitch
	d.canvas = newCanvas(pictureWidth, height, p.Title, p.About)
	d.text("title", 16, titleLine, begins, p.Title)
	d.text("body", pictureWidth-16, titleLine, ends, p.Source)
	d.scenes()
	d.axis()
	d.links()
	for i, l := range p.Lanes {
		d.lane(d.lanesTop+float64(i)*rowHeight, l)
	}
	d.store()
	d.legend(legendTop)
	return d.bytes()
}

// withMargin is a span whose right end leaves room for the signs and the label of a write at an instant.
func (Picture) withMargin(at time.Duration) time.Duration {
	const room = 4.2 * signWidth
	return time.Duration(float64(at) * (plotRight - plotLeft) / (plotRight - plotLeft - room))
}

// x is where an instant lies.
func (d *drawing) x(at time.Duration) float64 {
	return plotLeft + (plotRight-plotLeft)*float64(min(max(at, 0), d.Span))/float64(max(d.Span, 1))
}

// width is the room for a scene's text.
func (d *drawing) width(s Scene) float64 { return d.x(s.To) - d.x(s.From) - 14 }

// scenes draws the bands and what is written at their top.
func (d *drawing) scenes() {
	for i, s := range d.Scenes {
		left, right := d.x(s.From), d.x(s.To)
		if i%2 == 0 {
			d.rect("band", left, sceneTop, right-left, d.axisTop-sceneTop, 0)
		}
		y := sceneTop + 17
		for _, line := range wrap(s.Head, 13, d.width(s)) {
			d.text("head", left+8, y, begins, line)
			y += lineHeight
		}
		for _, line := range wrap(s.Body, 12, d.width(s)) {
			d.text("body", left+8, y, begins, line)
			y += lineHeight
		}
	}
}

// axis draws the time below everything.
func (d *drawing) axis() {
	d.line("rule", plotLeft, d.axisTop, plotRight, d.axisTop)
	step := 5 * time.Second
	for d.Span > 12*step {
		step *= 2
	}
	for at := time.Duration(0); at <= d.Span; at += step {
		x := d.x(at)
		d.line("rule", x, d.axisTop, x, d.axisTop+5)
		a := middle
		if d.x(d.Span)-x < 12 {
			a = ends
		}
		d.text("body", x, d.axisTop+19, a, fmt.Sprintf("%d s", int(at.Seconds())))
	}
}

// lane draws one process.
func (d *drawing) lane(top float64, l Lane) {
	y := top + barMiddle
	d.text("lane", 16, y+4, begins, l.Name)
	end := d.Span
	if l.Ended != 0 {
		end = l.Ended
	}
	from := time.Duration(0)
	for _, f := range l.Frozen {
		d.line("life", d.x(from), y, d.x(f.From), y)
		d.line("frozen", d.x(f.From)+4, y, d.x(f.To), y)
		from = f.To
	}
	d.line("life", d.x(from), y, d.x(end), y)
	for _, w := range l.Waits {
		d.rect("wait", d.x(w.From), y-4, d.x(w.To)-d.x(w.From), 8, 2)
	}
	for _, b := range l.Left {
		d.rect("left", d.x(b.From), top+barTop, d.x(b.To)-d.x(b.From), barHeight, 2)
	}
	for _, b := range l.Leases {
		d.rect("lease", d.x(b.From), top+barTop, d.x(b.To)-d.x(b.From), barHeight, 2)
		d.label("on", b, y)
	}
	d.captions(top+12, l.Captions)
	for i, x := range d.spread(l.Marks) {
		d.mark(l.Marks[i].Kind, x, y)
	}
}

// captions writes the captions of one lane, in order. One that would run into the one before it is left out.
func (d *drawing) captions(y float64, all []Caption) {
	free := plotLeft
	for _, c := range all {
		x, width := d.x(c.At)+signWidth/2, widthOf(c.Text, 11.5)
		if c.Before {
			x = d.x(c.At) - width
		}
		if x < free {
			continue
		}
		free = x + width
		if c.Before {
			d.text("cap", d.x(c.At), y, ends, c.Text)
		} else {
			d.text("cap", x, y, begins, c.Text)
		}
	}
}

// spread is where marks are drawn: at their instants, or beside the mark before if they would hide it.
func (d *drawing) spread(marks []Mark) []float64 {
	xs := make([]float64, len(marks))
	for i, m := range marks {
		xs[i] = d.x(m.At)
		if i > 0 {
			xs[i] = max(xs[i], xs[i-1]+signWidth)
		}
	}
	return xs
}

// label writes a bar's label into it, if there is room beside the sign at its end.
func (d *drawing) label(class string, b Bar, y float64) {
	if left, right := d.x(b.From), d.x(b.To); widthOf(b.Label, 11.5)+5+signWidth/2 <= right-left {
		d.text(class, left+5, y+4, begins, b.Label)
	}
}

// storeMiddle is the middle of the results table's row.
func (d *drawing) storeMiddle() float64 { return d.storeTop + rowHeight/2 }

// links draws the ways of the writes from the lanes to the results table, beneath all else.
func (d *drawing) links() {
	for i, l := range d.Lanes {
		from := d.lanesTop + float64(i)*rowHeight + barMiddle
		for j, x := range d.spread(l.Marks) {
			if class, ok := map[MarkKind]string{Stored: "link okl", Refused: "link nol"}[l.Marks[j].Kind]; ok {
				d.line(class, x, from, x, d.storeMiddle())
			}
		}
	}
}

// store draws the results table and what reached it: a stored write with its token to the left, a refused one with its
// token to the right.
func (d *drawing) store() {
	y := d.storeMiddle()
	d.rect("shelf", 10, d.storeTop, plotRight-10, rowHeight, 4)
	d.text("lane", 16, y-3, begins, "results")
	d.text("body", 16, y+12, begins, "table")
	for _, l := range d.Lanes {
		for j, x := range d.spread(l.Marks) {
			switch m := l.Marks[j]; m.Kind {
			case Stored:
				d.text("kept", x-14, y+4.5, ends, m.Label)
				d.mark(m.Kind, x, y)
			case Refused:
				d.text("old", x+14, y+4.5, begins, m.Label)
				d.mark(m.Kind, x, y)
			case Skipped, Killed, Stopped, Woken:
			}
		}
	}
}

// mark draws a sign. Every kind has a shape of its own.
func (d *drawing) mark(k MarkKind, x, y float64) {
	switch k {
	case Skipped:
		d.circle("skip", x, y, 6)
		d.path("skipl", x, y, "M-2.6 0.2L-0.6 2.2L2.8 -2")
	case Killed:
		d.path("dead", x, y, "M-6 -6L6 6M6 -6L-6 6")
	case Stopped:
		d.circle("halt", x, y, 8.5)
		d.path("sign", x, y, "M-2.6 -3.6V3.6M2.6 -3.6V3.6")
	case Woken:
		d.circle("halt", x, y, 8.5)
		d.path("solid", x, y, "M-2.4 -4.2L4.4 0L-2.4 4.2Z")
	case Stored:
		d.circle("ok", x, y, 8.5)
		d.path("sign", x, y, "M-4 0.2L-1.2 3.2L4.2 -3")
	case Refused:
		d.path("no", x, y, "M-4.2 -9.6H4.2L9.6 -4.2V4.2L4.2 9.6H-4.2L-9.6 4.2V-4.2Z")
		d.path("sign", x, y, "M-3.6 -3.6L3.6 3.6M3.6 -3.6L-3.6 3.6")
	}
}

// legend explains the signs.
func (d *drawing) legend(y float64) {
	d.line("rule", 12, y-17, pictureWidth-12, y-17)
	const first, second, third = 30.0, 296.0, 562.0
	bar := func(class string, x, y float64) { d.rect(class, x-12, y-6, 24, 12, 2) }
	entry := func(x, y float64, text string) { d.text("cap", x+18, y+4, begins, text) }

	bar("lease", first, y)
	entry(first, y, "holds the lease; its token")
	d.mark(Stored, second, y)
	entry(second, y, "write stored")
	d.mark(Killed, third, y)
	entry(third, y, "process killed")

	y += legendPitch
	bar("left", first, y)
	entry(first, y, "its holder is gone, the lease still counts")
	d.mark(Refused, second, y)
	entry(second, y, "write refused: token too old")
	d.mark(Stopped, third-5, y)
	d.mark(Woken, third+14, y)
	d.text("cap", third+30, y+4, begins, "stopped, woken later")

	y += legendPitch
	d.rect("wait", first-12, y-4, 24, 8, 2)
	entry(first, y, "delivery waits for the lease")
	d.mark(Skipped, second, y)
	entry(second, y, "nothing to do: already done")
	d.text("body", pictureWidth-16, y+4, ends, d.Note)
}
