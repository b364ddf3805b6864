package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Table writes rows under a head, in columns as wide as they need to be, two spaces apart.
func Table(head []string, rows ...[]string) string {
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	rule := make([]string, len(head))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width)
	}
	var b strings.Builder
	for _, row := range append([][]string{head, rule}, rows...) {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "  %-*s", widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}
