// Package escape writes the names of locks as parts of paths, byte by byte and reversibly: two names are two locks, and a listing
// gives the original name back.
package escape

import (
	"fmt"
	"strings"
)

const hex = "0123456789ABCDEF"

// Plain tells whether a byte stands for itself. Not among them are those that services, their tools or URLs treat in some special
// way: '/' makes folders and is cleaned on its way, '.' at an end is cut, and "%2F" would be read as '/' by some.
func Plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// Name is name with =XX for every byte that is not Plain. The escape of a prefix is a prefix of the escape.
func Name(name string) string {
	special := 0
	for i := range len(name) {
		if !Plain(name[i]) {
			special++
		}
	}
	if special == 0 {
		return name
	}
	var b strings.Builder
	b.Grow(len(name) + 2*special)
	for i := range len(name) {
		if c := name[i]; Plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('=')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// Undo is the reverse of Name. What Name cannot have written is an error, so that no two texts are one name.
func Undo(text string) (string, error) {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '=' && i+2 < len(text) {
			high, low := strings.IndexByte(hex, text[i+1]), strings.IndexByte(hex, text[i+2])
			if high < 0 || low < 0 || Plain(byte(high<<4|low)) {
				return "", fmt.Errorf("%.60q is not an escaped name", text)
			}
			c = byte(high<<4 | low)
			i += 2
		} else if !Plain(c) {
			return "", fmt.Errorf("%.60q is not an escaped name", text)
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}
