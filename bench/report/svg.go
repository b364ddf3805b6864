package report

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/cloudlease/cloudlease/bench/scene"
)

// The measures of the plots, in pixels.
const (
	plotWidth  = 800.0
	labelWidth = 168.0
	barHeight  = 15.0
	barPitch   = 19.0
	panelHead  = 30.0
	panelGap   = 14.0
)

// The background is part of the picture, so that it reads the same on a light and on a dark page. Colors are told apart by the
// color-blind, and no meaning hangs on color alone.
const styles = `text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Liberation Sans",sans-serif;fill:#1f2328}
.title{font-size:16px;font-weight:600}.head{font-weight:600}.body{fill:#57606a;font-size:11px}.rule{stroke:#d8dee4}
.cloudlease{fill:#0068a8}.bare{fill:#8c959f}.peer{fill:#d08a4a}.l{fill:none;stroke-width:2}`

func class(k scene.Kind) string {
	switch k {
	case scene.Ours:
		return "cloudlease"
	case scene.Floor:
		return "bare"
	case scene.Peer:
	}
	return "peer"
}

// bar is one bar of a panel.
type bar struct {
	label string
	kind  scene.Kind
	value float64
	text  string
}

// panel is a group of bars with a scale of its own.
type panel struct {
	title string
	bars  []bar
	least float64 // what the scale reaches at least, so that nothing is not drawn as if it were much
}

// panels takes bars from the results: one panel per metric, with the subjects of a store that have it.
func (r Results) panel(store, scenario, metric, title string) panel {
	p := panel{title: title}
	w := row{metric: metric, digits: 1}
	for _, x := range rows {
		if x.scenario == scenario && x.metric == metric {
			w = x
		}
	}
	if w.unit == " s" {
		p.least = 2
	}
	for _, s := range r.subjects(store) {
		if v, ok := r.Get(scenario, s.Name, metric); ok {
			p.bars = append(p.bars, bar{s.Label, s.Kind, v, w.cell(v, true)})
		}
	}
	return p
}

// draw draws panels in two columns.
func draw(title, about string, panels []panel) []byte {
	var b bytes.Buffer
	columns := [2]float64{46, 46}
	type placed struct {
		panel
		x, y float64
	}
	var all []placed
	for _, p := range panels {
		if len(p.bars) == 0 {
			continue
		}
		c := 0
		if columns[1] < columns[0] {
			c = 1
		}
		all = append(all, placed{p, 16 + float64(c)*(plotWidth/2), columns[c]})
		columns[c] += panelHead + float64(len(p.bars))*barPitch + panelGap
	}
	height := max(columns[0], columns[1]) + 26
	begin(&b, height, title, about)
	for _, p := range all {
		p.draw(&b, p.x, p.y)
	}
	fmt.Fprintf(&b, `<text class="body" x="16" y="%.1f">blue: this project; gray: the bare SDK, which is no lock to use; brown: other libraries. Less is better.</text>`+"\n", height-12)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func begin(b *bytes.Buffer, height float64, title, about string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-labelledby="t d">`+"\n",
		plotWidth, height, plotWidth, height)
	fmt.Fprintf(b, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n<style>%s</style>\n", html.EscapeString(title), html.EscapeString(about), styles)
	fmt.Fprintf(b, `<rect x="0.5" y="0.5" width="%.0f" height="%.0f" rx="8" fill="#fff" stroke="#d0d7de"/>`+"\n", plotWidth-1, height-1)
	fmt.Fprintf(b, `<text class="title" x="16" y="28">%s</text>`+"\n", html.EscapeString(title))
}

func (p panel) draw(b *bytes.Buffer, x, y float64) {
	most := p.least
	for _, bar := range p.bars {
		most = max(most, bar.value)
	}
	fmt.Fprintf(b, `<text class="head" x="%.1f" y="%.1f">%s</text>`+"\n", x, y+18, html.EscapeString(p.title))
	room := plotWidth/2 - 32 - labelWidth - 62
	for i, bar := range p.bars {
		top := y + panelHead + float64(i)*barPitch
		width := room
		if bar.value != scene.Never {
			width = max(1, room*bar.value/max(most, 1e-9))
		}
		fill := ""
		if bar.value == scene.Never {
			fill = ` style="fill:none;stroke:#57606a;stroke-dasharray:3 3"`
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, x+labelWidth-6, top+12, html.EscapeString(bar.label))
		fmt.Fprintf(b, `<rect class="%s"%s x="%.1f" y="%.1f" width="%.1f" height="%.0f" rx="2"/>`, class(bar.kind), fill, x+labelWidth, top, width, barHeight)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f">%s</text>`+"\n", x+labelWidth+width+5, top+12, html.EscapeString(bar.text))
	}
}

// curve is a line over a logarithmic axis.
type curve struct {
	label  string
	color  string
	dash   string
	points [][2]float64
}

// drawCurves draws curves on two logarithmic axes.
func drawCurves(title, about, below, beside string, curves []curve) []byte {
	const left, right, top, bottom = 84.0, 210.0, 58.0, 366.0
	var b bytes.Buffer
	begin(&b, bottom+54, title, about)
	low, high, from, to := math.Inf(1), 0.0, math.Inf(1), 0.0
	for _, c := range curves {
		for _, p := range c.points {
			from, to, low, high = min(from, p[0]), max(to, p[0]), min(low, p[1]), max(high, p[1])
		}
	}
	floor, ceiling := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	x := func(v float64) float64 {
		return left + (plotWidth-right-left)*(math.Log10(v)-math.Log10(from))/max(math.Log10(to)-math.Log10(from), 1e-9)
	}
	y := func(v float64) float64 { return bottom - (bottom-top)*(math.Log10(v)-floor)/max(ceiling-floor, 1e-9) }
	for e := floor; e <= ceiling; e++ {
		v := math.Pow(10, e)
		fmt.Fprintf(&b, `<path class="rule" d="M%.1f %.1fH%.1f"/><text class="body" x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y(v), plotWidth-right, left-6, y(v)+4, trim(v, 4))
	}
	for e := math.Log10(from); e <= math.Log10(to)+1e-9; e++ {
		v := math.Pow(10, e)
		fmt.Fprintf(&b, `<text class="body" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x(v), bottom+18, trim(v, 0))
	}
	fmt.Fprintf(&b, `<text class="body" x="%.1f" y="%.1f" text-anchor="middle">%s</text><text class="body" x="16" y="48">%s</text>`+"\n",
		(left+plotWidth-right)/2, bottom+38, html.EscapeString(below), html.EscapeString(beside))
	taken := []float64{}
	for _, c := range curves {
		path, op := strings.Builder{}, "M"
		for _, p := range c.points {
			fmt.Fprintf(&path, "%s%.1f %.1f", op, x(p[0]), y(p[1]))
			op = "L"
		}
		fmt.Fprintf(&b, `<path class="l" stroke="%s" stroke-dasharray="%s" d="%s"/>`, c.color, c.dash, path.String())
		last := y(c.points[len(c.points)-1][1])
		at := apart(last, taken)
		taken = append(taken, at)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" style="fill:%s">%s</text>`+"\n", plotWidth-right+8, at+4, c.color, html.EscapeString(c.label))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// apart is the place next to y that no other label has.
func apart(y float64, taken []float64) float64 {
	for free := false; !free; {
		free = true
		for _, t := range taken {
			if math.Abs(t-y) < 15 {
				y, free = t+15, false
			}
		}
	}
	return y
}
