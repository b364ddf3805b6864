//go:build unix

package main

import (
	"bytes"
	"fmt"
	"time"
)

// The picture's measures, in pixels.
const (
	lane, left, top, width = 34.0, 92.0, 74.0, 960.0
	right                  = 24.0
)

var colors = map[string]string{"A": "#0068a8", "B": "#b35900", "C": "#00795a"}

// picture draws who owned which shard when, and each record that was processed.
func picture(s story, began, killed time.Time) []byte {
	end := began
	for _, sp := range s.spans {
		if sp.until.After(end) {
			end = sp.until
		}
	}
	total := end.Sub(began) + time.Second
	x := func(at time.Time) float64 { return left + (width-left-right)*float64(at.Sub(began))/float64(total) }
	height := top + shards*lane + 56
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-labelledby="t d">
<title id="t">Who owned which shard when</title>
<desc id="d">%d shards over %.0f seconds. Each bar is the time of one owner, each tick a record that was processed.</desc>
<style>text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:#1f2328}.h{font-size:16px;font-weight:600}.s{fill:#57606a}
.on{fill:#fff;font-weight:600}.tick{stroke:#fff;stroke-opacity:.55}.r{stroke:#d8dee4}</style>
<rect x="0.5" y="0.5" width="%.0f" height="%.0f" rx="8" fill="#fff" stroke="#d0d7de"/>
<text class="h" x="20" y="28">Three Lambda processes share %d shards, round after round; one is killed</text>
<text class="s" x="20" y="48">A bar is the time of one owner, its letter the process; a tick is a record; a circle is the shard's end.</text>
`, width, height, width, height, shards, total.Seconds(), width-1, height-1, shards)
	for at := time.Duration(0); at <= total; at += 5 * time.Second {
		px := x(began.Add(at))
		fmt.Fprintf(&b, `<path class="r" d="M%.1f %.0fV%.0f"/><text class="s" x="%.1f" y="%.0f" text-anchor="middle">%.0f s</text>`+"\n",
			px, top, top+shards*lane, px, top+shards*lane+18, at.Seconds())
	}
	row := map[string]float64{}
	for i := range shards {
		id := fmt.Sprintf("shard-%03d", i+1)
		row[id] = top + float64(i)*lane
		fmt.Fprintf(&b, `<text x="20" y="%.1f">%s</text>`+"\n", row[id]+21, id)
	}
	for _, sp := range s.spans {
		y, px := row[sp.shard]+5, x(sp.from)
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" rx="3" fill="%s"/>`, px, y, max(x(sp.until)-px, 2), lane-10, colors[sp.who])
		if sp.ended {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="6" fill="#fff" stroke="%s" stroke-width="2.5"/>`, x(sp.until)+8, y+12, colors[sp.who])
		}
	}
	for _, w := range s.writes {
		px, y := x(w.at), row[w.shard]+8
		fmt.Fprintf(&b, `<path class="tick" d="M%.1f %.1fv18"/>`, px, y)
	}
	for _, sp := range s.spans {
		fmt.Fprintf(&b, `<text class="on" x="%.1f" y="%.1f">%s</text>`+"\n", x(sp.from)+4, row[sp.shard]+21, sp.who)
	}
	if !killed.IsZero() {
		fmt.Fprintf(&b, `<path d="M%.1f %.0fV%.0f" stroke="#1f2328" stroke-width="2" stroke-dasharray="3 3"/><text x="%.1f" y="%.0f" text-anchor="middle" font-weight="600">%s is killed</text>`+"\n",
			x(killed), top-8, top+shards*lane+22, x(killed), top+shards*lane+38, names[victim])
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
