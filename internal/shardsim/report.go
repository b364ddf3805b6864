package shardsim

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// Table is the results of both rules, in Markdown.
func Table(s Schedule, ours, theirs []Result) string {
	var b strings.Builder
	b.WriteString("| phase | even after | | moves | | shards lost | | writes/s | | reads/s | | most - fewest | |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i, a := range ours {
		z := theirs[i]
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %d | %.1f | %.1f | %.1f | %.1f | %d | %d |\n", a.Phase, after(a, s), after(z, s),
			a.Moves, z.Moves, a.Lost, z.Lost, a.Writes, z.Writes, a.Reads, z.Reads, a.Spread, z.Spread)
	}
	return b.String()
}

func after(r Result, s Schedule) string {
	switch {
	case r.Converged < 0 && r.Owned < s.Shards:
		return fmt.Sprintf("not (%d without owner)", s.Shards-r.Owned)
	case r.Converged < 0:
		return "not"
	}
	return r.Converged.Round(time.Second).String()
}

// The plot's measures, in pixels.
const (
	left, right, top = 64.0, 20.0, 78.0
	width, panel     = 960.0, 120.0
	gap              = 34.0
)

type series struct {
	name string
	of   func(Sample) float64
}

// Plot draws both rules over time, one panel per measure, as an SVG document.
func Plot(s Schedule, ours, theirs []Sample) []byte {
	panels := []series{
		{"shards that are worked on", func(x Sample) float64 { return float64(x.Owned) }},
		{"most minus fewest shards of a worker", func(x Sample) float64 { return float64(x.Spread) }},
		{"moves since the start", func(x Sample) float64 { return float64(x.Moves) }},
		{"writes per second, without checkpoints", func(x Sample) float64 { return float64(x.Writes) / SampleEvery.Seconds() }},
		{"reads per second", func(x Sample) float64 { return float64(x.Reads) / SampleEvery.Seconds() }},
	}
	height := top + float64(len(panels))*(panel+gap) + 24
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-labelledby="t d">
<title id="t">%d shards: one lease per worker beside one lease per shard</title>
<desc id="d">Five curves over time, each for both rules, under joins, crashes, a rolling restart and a throttled table.</desc>
<style>text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:#1f2328}.h{font-size:16px;font-weight:600}.s{fill:#57606a;font-size:11px}
.a{fill:none;stroke:#0068a8;stroke-width:2}.z{fill:none;stroke:#b35900;stroke-width:1.4;stroke-dasharray:4 2}.r{stroke:#d8dee4}.band{fill:#f3f6f9}</style>
<rect x="0.5" y="0.5" width="%.0f" height="%.0f" rx="8" fill="#fff" stroke="#d0d7de"/>
`, width, height, width, height, s.Shards, width-1, height-1)
	fmt.Fprintf(&b, `<text class="h" x="%.0f" y="24">%d shards, %d workers, TTL %v</text>`+"\n", left, s.Shards, s.Workers, s.TTL)
	fmt.Fprintf(&b, `<path class="a" d="M%.0f 40h28"/><text x="%.0f" y="44">one lease per worker (package shard)</text>`, left, left+34)
	fmt.Fprintf(&b, `<path class="z" d="M%.0f 40h28"/><text x="%.0f" y="44">one lease per shard (model)</text>`+"\n", left+290, left+324)
	total := s.Length()
	x := func(d time.Duration) float64 { return left + (width-left-right)*float64(d)/float64(total) }
	y0 := top
	for _, p := range panels {
		drawPanel(&b, s, p, y0, x, ours, theirs)
		y0 += panel + gap
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func drawPanel(b *bytes.Buffer, s Schedule, p series, y0 float64, x func(time.Duration) float64, ours, theirs []Sample) {
	most := 1.0
	for _, all := range [][]Sample{ours, theirs} {
		for _, v := range all {
			most = max(most, p.of(v))
		}
	}
	var at time.Duration
	for i, phase := range s.Phases {
		if i%2 == 1 {
			fmt.Fprintf(b, `<rect class="band" x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`, x(at), y0, x(at+phase.Length)-x(at), panel)
		}
		fmt.Fprintf(b, `<text class="s" x="%.1f" y="%.1f">%s</text>`+"\n", x(at)+3, y0+panel+13, phase.Name)
		at += phase.Length
	}
	fmt.Fprintf(b, `<text x="%.0f" y="%.1f" font-weight="600">%s</text>`, left, y0-6, p.name)
	fmt.Fprintf(b, `<path class="r" d="M%.0f %.1fH%.0fM%.0f %.1fH%.0f"/>`, left, y0, width-right, left, y0+panel, width-right)
	fmt.Fprintf(b, `<text class="s" x="%.0f" y="%.1f" text-anchor="end">%.0f</text><text class="s" x="%.0f" y="%.1f" text-anchor="end">0</text>`+"\n",
		left-6, y0+9, most, left-6, y0+panel)
	for i, all := range [][]Sample{theirs, ours} {
		var line strings.Builder
		for j, v := range all {
			op := "L"
			if j == 0 {
				op = "M"
			}
			fmt.Fprintf(&line, "%s%.1f %.1f", op, x(v.At), y0+panel-panel*p.of(v)/most)
		}
		fmt.Fprintf(b, `<path class="%s" d="%s"/>`+"\n", []string{"z", "a"}[i], line.String())
	}
}
