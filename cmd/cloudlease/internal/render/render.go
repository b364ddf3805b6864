// Package render writes the results of commands: as a table for people, or as JSON for programs.
package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cloudlease/cloudlease/lease"
)

// Table writes rows under a head, in columns as wide as they need to be. Control characters cannot come out of a cell.
func Table(w io.Writer, head []string, rows [][]string) error {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range slices.Concat([][]string{head}, rows) {
		for _, cell := range row {
			_, _ = fmt.Fprintf(tw, "%s\t", short(Plain(cell), cellSize))
		}
		_, _ = fmt.Fprintln(tw)
	}
	_ = tw.Flush() // a buffer takes all
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// Fields writes what is known of one thing, a line each. Empty values are left out.
func Fields(w io.Writer, pairs ...[2]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range pairs {
		if p[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(tw, "%s\t%s\n", p[0], Plain(p[1])); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// JSON writes v, indented. What steers a terminal is escaped, also where JSON would allow it.
func JSON(w io.Writer, v any) error { return encode(w, v, "  ") }

// JSONLine is JSON on one line.
func JSONLine(w io.Writer, v any) error { return encode(w, v, "") }

func encode(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	var safe strings.Builder
	for _, r := range b.String() {
		if r != '\n' && steers(r) { // only a string can hold it
			fmt.Fprintf(&safe, `\u%04x`, r)
			continue
		}
		safe.WriteRune(r)
	}
	_, err := io.WriteString(w, safe.String())
	return err
}

// Time is t in UTC to the second, empty for none.
func Time(t time.Time) string {
	if t.IsZero() || t.Unix() <= 0 {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Stamp is Time for JSON: nil for none.
func Stamp(t time.Time) *string {
	s := Time(t)
	if s == "" {
		return nil
	}
	return &s
}

// Plain is s on one line, without what steers a terminal: others have written it into a store.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) {
			return '?'
		}
		return r
	}, s)
}

// Lines is Plain for a message of several lines. All but the first are indented, so that none can be taken for another message.
func Lines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, line := range lines {
		lines[i] = short(Plain(strings.ReplaceAll(line, "\t", " ")), lineSize)
	}
	return strings.Join(lines, "\n  ")
}

// steers tells whether a terminal may do something else than show r: control characters, those that change the direction of
// the text, and separators of lines.
func steers(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// The sizes in characters of the largest cell of a table (no name of a lock has more bytes) and of the longest line of a message.
const (
	cellSize = lease.MaxName
	lineSize = 2000
)

func short(s string, size int) string {
	if utf8.RuneCountInString(s) <= size {
		return s
	}
	return string([]rune(s)[:size-3]) + "..."
}
