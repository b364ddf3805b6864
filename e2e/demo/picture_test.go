package main_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	demo "github.com/cloudlease/cloudlease/e2e/demo"
)

// sample is a run as it usually goes.
func sample() demo.Picture {
	at := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	bar := func(from, to float64, label string) demo.Bar {
		return demo.Bar{From: at(from), To: at(to), Label: label}
	}
	mark := func(s float64, kind demo.MarkKind, label string) demo.Mark {
		return demo.Mark{At: at(s), Kind: kind, Label: label}
	}
	wait, skip := bar(0.1, 4.2, ""), mark(4.2, demo.Skipped, "")
	return demo.Picture{
		Title: "Title <&>", About: "About", Source: "source", Note: "note", Span: at(33),
		Scenes: []demo.Scene{
			{To: at(5.8), Head: "a. Five at once", Body: "one runs, the other four skip"},
			{From: at(5.8), To: at(16.8), Head: "b. Killed in mid-run", Body: "the next takes over with a higher token; one result"},
			{From: at(16.8), To: at(33), Head: "c. Stopped past its lease", Body: "another takes over and writes; the late write is refused"},
		},
		Lanes: []demo.Lane{
			{Name: "process A", Waits: []demo.Bar{wait}, Marks: []demo.Mark{skip, mark(5.1, demo.Skipped, "")}},
			{
				Name: "process B", Waits: []demo.Bar{wait}, Ended: at(8.5),
				Leases: []demo.Bar{bar(6, 8.5, "…10000")}, Left: []demo.Bar{bar(8.5, 10.6, "")},
				Marks:    []demo.Mark{skip, mark(8.5, demo.Killed, "")},
				Captions: []demo.Caption{{At: at(8.5), Text: "killed, gives nothing back"}},
			},
			{
				Name: "process C", Waits: []demo.Bar{bar(8.6, 12.7, "")},
				Leases:   []demo.Bar{bar(0.1, 3.9, "…04180"), bar(12.7, 16.3, "…16700")},
				Marks:    []demo.Mark{mark(3.9, demo.Stored, "…04180"), mark(16.3, demo.Stored, "…16700")},
				Captions: []demo.Caption{{At: at(16.3), Text: "takes over after 4.2 s", Before: true}},
			},
			{
				Name: "process D", Waits: []demo.Bar{wait}, Frozen: []demo.Bar{bar(20.7, 29.4, "")},
				Leases: []demo.Bar{bar(17, 20.7, "…21000")}, Left: []demo.Bar{bar(20.7, 22.9, "")},
				Marks: []demo.Mark{
					skip, mark(20.7, demo.Stopped, ""), mark(29.4, demo.Woken, ""), mark(29.7, demo.Refused, "…21000"),
				},
				Captions: []demo.Caption{
					{At: at(20.7), Text: "stopped"},
					{At: at(31.4), Text: "wakes, writes: refused", Before: true},
					{At: at(31.5), Text: "has no room", Before: true},
				},
			},
			{
				Name: "process E", Waits: []demo.Bar{wait, bar(20.8, 25.2, "")}, Leases: []demo.Bar{bar(25.2, 28.7, "…29200")},
				Marks:    []demo.Mark{skip, mark(28.6, demo.Stored, "…29200")},
				Captions: []demo.Caption{{At: at(28.6), Text: "takes over after 4.5 s", Before: true}},
			},
		},
	}
}

// node is an element of the picture.
type node struct {
	name, text string
	attrs      map[string]string
}

func (n node) number(t *testing.T, attr string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(n.attrs[attr], 64)
	require.NoError(t, err, "%s of <%s>", attr, n.name)
	return f
}

// parse reads the picture as strictly as a browser reads it.
func parse(t *testing.T, svg []byte) []node {
	t.Helper()
	var all []node
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			attrs := map[string]string{}
			for _, a := range token.Attr {
				attrs[a.Name.Local] = a.Value
			}
			all = append(all, node{name: token.Name.Local, attrs: attrs})
		case xml.CharData:
			if len(all) > 0 {
				all[len(all)-1].text += strings.TrimSpace(string(token))
			}
		}
	}
}

func TestPictureIsSmallAndSelfContained(t *testing.T) {
	svg := sample().SVG()
	require.Less(t, len(svg), 60<<10)
	var names []string
	for _, n := range parse(t, svg) {
		names = append(names, n.name)
		for attr, v := range n.attrs {
			require.NotContains(t, attr, "href")
			require.False(t, strings.HasPrefix(attr, "on"), "%s is a script", attr)
			if attr != "xmlns" {
				require.NotContains(t, v, "//", "%s refers to something outside", attr)
			}
		}
	}
	require.Equal(t, "svg", names[0])
	require.NotContains(t, names, "script")
	require.NotContains(t, names, "foreignObject")
	require.NotContains(t, string(svg), "@import")
}

func TestPictureHasABackgroundOfItsOwn(t *testing.T) {
	nodes := parse(t, sample().SVG())
	for _, n := range nodes {
		if n.attrs["class"] == "page" {
			require.InDelta(t, nodes[0].number(t, "width"), n.number(t, "width"), 2)
			require.InDelta(t, nodes[0].number(t, "height"), n.number(t, "height"), 2)
			return
		}
	}
	require.Fail(t, "there is no background")
}

func TestPictureTellsTheStory(t *testing.T) {
	p := sample()
	var texts []string
	classes := map[string]int{}
	for _, n := range parse(t, p.SVG()) {
		classes[n.attrs["class"]]++
		if n.text != "" {
			texts = append(texts, n.text)
		}
	}
	for _, want := range []string{
		"Title <&>", "About", "source", "note", "a. Five at once", "killed, gives nothing back", "takes over after 4.5 s",
		"wakes, writes: refused", "process A", "process E", "0 s", "30 s",
	} {
		require.Contains(t, texts, want)
	}
	require.NotContains(t, texts, "has no room")
	tokens := 0
	for _, text := range texts {
		if strings.HasPrefix(text, "…") {
			tokens++
		}
	}
	require.Equal(t, 5+4, tokens, "one token on every lease, one at every write")
	const legend = 1
	require.Equal(t, 5+legend, classes["lease"])
	require.Equal(t, 2+legend, classes["left"])
	require.Equal(t, 1, classes["frozen"])
	require.Equal(t, 1+legend, classes["dead"], "killed")
	require.Equal(t, 2+2*legend, classes["halt"], "stopped and woken")
	require.Equal(t, 2*3+legend, classes["ok"], "stored: in the lane and in the table")
	require.Equal(t, 2*1+legend, classes["no"], "refused: in the lane and in the table")
	require.Equal(t, 3, classes["link okl"])
	require.Equal(t, 1, classes["link nol"])
}

// sizes are the font sizes of the picture's styles.
var sizes = map[string]float64{
	"title": 17, "head": 13, "body": 12, "lane": 12.5, "cap": 11.5, "on": 11.5, "kept": 12.5, "old": 12.5,
}

// The widths of texts are guessed; common fonts are narrower than this.
func TestTextsOfThePictureDoNotOverlap(t *testing.T) {
	type box struct {
		text                     string
		left, right, top, bottom float64
	}
	var boxes []box
	nodes := parse(t, sample().SVG())
	for _, n := range nodes {
		if n.name != "text" {
			continue
		}
		size := sizes[n.attrs["class"]]
		require.NotZero(t, size, "unknown style %q", n.attrs["class"])
		width, x, y := 0.52*size*float64(len([]rune(n.text))), n.number(t, "x"), n.number(t, "y")
		left := map[string]float64{"start": x, "middle": x - width/2, "end": x - width}[n.attrs["text-anchor"]]
		boxes = append(boxes, box{n.text, left, left + width, y - 0.75*size, y + 0.2*size})
	}
	for i, a := range boxes {
		require.GreaterOrEqual(t, a.left, 8.0, a.text)
		require.LessOrEqual(t, a.right, nodes[0].number(t, "width")-8, a.text)
		require.LessOrEqual(t, a.bottom, nodes[0].number(t, "height")-8, a.text)
		for _, b := range boxes[:i] {
			apart := a.left >= b.right || b.left >= a.right || a.top >= b.bottom || b.top >= a.bottom
			require.True(t, apart, "%q and %q overlap", a.text, b.text)
		}
	}
}
