// Package excerpt makes what others have written fit to be shown: short, and without what a terminal or a log would obey.
package excerpt

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Of is text, or its beginning of at most most bytes and "…". White space becomes blanks; control characters and what is no UTF-8
// become U+FFFD.
func Of(text string, most int) string {
	if len(text) > most {
		cut := most
		for cut > most-utf8.UTFMax && cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// most is what an error repeats of another: enough for what is wrong, not for what it is wrong with.
const most = 200

// Error is the text of err, fit to be part of another error. Decoders repeat what they could not read.
func Error(err error) error { return errors.New(Of(err.Error(), most)) }
