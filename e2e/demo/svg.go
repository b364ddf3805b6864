package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// canvas writes the elements of an SVG document, in user units that are pixels at the picture's own size.
type canvas struct{ b bytes.Buffer }

// The styles of the picture. The background is part of the picture, so that it reads the same on a light and on a dark
// page. The colors are told apart by the color-blind, and no meaning hangs on color alone.
const styles = `
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Liberation Sans",sans-serif;fill:#1f2328}
.title{font-size:17px;font-weight:600}
.head{font-size:13px;font-weight:600}
.body{font-size:12px;fill:#57606a}
.lane{font-size:12.5px;font-weight:600}
.cap{font-size:11.5px}
.on{font-size:11.5px;font-weight:600;fill:#fff}
.kept{font-size:12.5px;font-weight:600;fill:#00664c}
.old{font-size:12.5px;font-weight:600;fill:#b23b0a}
.page{fill:#fff;stroke:#d0d7de}
.band{fill:#f3f6f9}
.rule{stroke:#d8dee4}
.life{stroke:#8c959f;stroke-width:1.5}
.wait{fill:#c9d1d9}
.lease{fill:#0068a8}
.left{fill:url(#hatch);stroke:#0068a8;stroke-width:1}
.frozen{stroke:#b35900;stroke-width:2.5;stroke-dasharray:2 5;stroke-linecap:round}
.shelf{fill:none;stroke:#8c959f}
.link{stroke-width:1.2;stroke-dasharray:1 3;stroke-linecap:round}
.ok{fill:#00795a}.okl{stroke:#00795a}
.no{fill:#c2410c}.nol{stroke:#c2410c}
.halt{fill:#b35900}
.dead{stroke:#1f2328;stroke-width:3;stroke-linecap:round}
.sign{stroke:#fff;stroke-width:1.8;fill:none;stroke-linecap:round;stroke-linejoin:round}
.solid{fill:#fff}
.skip{fill:#fff;stroke:#57606a;stroke-width:1.6}
.skipl{stroke:#57606a;stroke-width:1.6;fill:none;stroke-linecap:round;stroke-linejoin:round}
`

const hatch = `<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
	`<rect width="6" height="6" fill="#fff"/><rect width="2" height="6" fill="#8db9d6"/></pattern></defs>` + "\n"

// newCanvas begins a document. title and about are what a screen reader says.
func newCanvas(width, height float64, title, about string) *canvas {
	c := &canvas{}
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-labelledby="t d">`+"\n",
		n(width), n(height), n(width), n(height))
	c.printf("<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n<style>%s</style>\n%s", escape(title), escape(about), styles, hatch)
	c.printf(`<rect class="page" x="0.5" y="0.5" width="%s" height="%s" rx="8"/>`+"\n", n(width-1), n(height-1))
	return c
}

// bytes ends the document.
func (c *canvas) bytes() []byte {
	c.printf("</svg>\n")
	return c.b.Bytes()
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

func (c *canvas) rect(class string, x, y, width, height, radius float64) {
	c.printf(`<rect class="%s" x="%s" y="%s" width="%s" height="%s" rx="%s"/>`+"\n", class, n(x), n(y), n(max(width, 0)), n(height), n(radius))
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	c.printf(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, n(x1), n(y1), n(x2), n(y2))
}

func (c *canvas) circle(class string, x, y, radius float64) {
	c.printf(`<circle class="%s" cx="%s" cy="%s" r="%s"/>`+"\n", class, n(x), n(y), n(radius))
}

// path draws d, an SVG path around the origin, at x, y.
func (c *canvas) path(class string, x, y float64, d string) {
	c.printf(`<path class="%s" transform="translate(%s %s)" d="%s"/>`+"\n", class, n(x), n(y), d)
}

// anchor says which end of a text stands at its x.
type anchor string

const (
	begins anchor = "start"
	middle anchor = "middle"
	ends   anchor = "end"
)

func (c *canvas) text(class string, x, y float64, a anchor, text string) {
	c.printf(`<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", class, n(x), n(y), a, escape(text))
}

// n writes a coordinate as short as it can be.
func n(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.1f", f), "0"), ".")
}

func escape(text string) string {
	var b bytes.Buffer
	if err := xml.EscapeText(&b, []byte(text)); err != nil {
		return "" // a bytes.Buffer takes everything
	}
	return b.String()
}

// widthOf is about how wide text is in a font of size. Fonts differ, so it is on the generous side.
func widthOf(text string, size float64) float64 {
	return 0.54 * size * float64(len([]rune(text)))
}

// wrap breaks text into lines of at most width.
func wrap(text string, size, width float64) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch longer := line + " " + word; {
		case line == "":
			line = word
		case widthOf(longer, size) <= width:
			line = longer
		default:
			lines, line = append(lines, line), word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
