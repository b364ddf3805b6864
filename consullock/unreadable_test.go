package consullock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/lease"
)

// huge is most of what Consul keeps in a key.
const huge = 500_000

// foreignNotes are values that this library does not write.
var foreignNotes = map[string]string{
	"empty":                  "",
	"no JSON":                "not a note",
	"null":                   "null",
	"a number":               "7",
	"an array":               "[]",
	"a string":               `"note"`,
	"cut off":                `{"attempt":"a","holder":`,
	"two notes":              `{"attempt":"a","holder":"b"}{"attempt":"a","holder":"b"}`,
	"deep":                   strings.Repeat("[", huge),
	"oversized":              strings.Repeat("x", huge),
	"wrong types":            `{"attempt":7,"holder":[],"since":"x","value":{},"started":"x","add":"x"}`,
	"negative numbers":       `{"since":-1,"started":-1,"finished":-1,"token":-1,"add":-1}`,
	"numbers out of range":   `{"since":1e30,"started":1e30,"token":1e30,"add":1e30}`,
	"the largest numbers":    `{"since":9223372036854775807,"started":9223372036854775807,"add":18446744073709551615}`,
	"an oversized number":    `{"since":` + strings.Repeat("9", huge) + `,"started":` + strings.Repeat("9", huge/4) + `,"add":` + strings.Repeat("9", huge/4) + `}`,
	"a token out of range":   `{"token":18446744073709551615}`,
	"an oversized text":      `{"attempt":"a","holder":"` + strings.Repeat("x", huge) + `"}`,
	"control characters":     "\x00\x1b[2J\n{}",
	"a controlling text":     `{"attempt":"a","holder":"\u001b[2J\u0000\n","datacenter":"\u001b[2J\n"}`,
	"no base64":              `{"value":"%%%"}`,
	"a reason that is none":  `{"broken":"stuck"}`,
	"a controlling reason":   `{"broken":{"by":"\u001b[2J\n","why":"\u001b[2J\n","token":-1}}`,
	"a reason without bound": `{"broken":{"by":"` + strings.Repeat("x", huge) + `","token":7}}`,
}

// TestUnreadableNotes: whatever stands in the keys of a lock, no operation panics, no grant has a token that is none, and an error
// says what is wrong in a few words that a terminal can show.
func TestUnreadableNotes(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		st := w.store(t, consullock.Options{}, nil)
		n := 0
		for what, note := range foreignNotes {
			for _, key := range []string{"lock", "grant", "kept", "floor"} {
				n++
				name := fmt.Sprint("x", n)
				if len(note) > huge && !w.virtual {
					continue // the agent refuses it
				}
				_, err := w.root.KV().Put(w.pair("locks/"+name+"/"+key, note), nil)
				require.NoError(t, err)
				about := key + ": " + what
				info, err := st.Inspect(t.Context(), name)
				showable(t, err, about)
				if err == nil && info.Token > lease.MaxToken {
					t.Errorf("%s: it tells token %d", about, info.Token)
				}
				g, err := st.TryAcquire(t.Context(), request(name))
				showable(t, err, about)
				if err == nil {
					require.LessOrEqual(t, g.Token, lease.MaxToken, about)
					_, err = st.Save(t.Context(), g, []byte("v"))
					showable(t, err, about)
					showable(t, st.Release(t.Context(), g, lease.Final{}), about)
				}
				showable(t, st.Break(t.Context(), name, 7, lease.Reason{By: "me"}), about)
				showable(t, st.RaiseFloor(t.Context(), name, 7), about)
				for _, err := range st.List(t.Context(), name) {
					showable(t, err, about)
				}
			}
		}
		require.NoError(t, st.Close(t.Context()))
	})
}

// showable wants an error, if there is one, to be classified and fit to be shown.
func showable(t *testing.T, err error, about string) {
	t.Helper()
	if err == nil {
		return
	}
	text := err.Error()
	if len(text) > 700 {
		t.Errorf("%s: an error of %d bytes: %.200q", about, len(text), text)
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("%s: an error with control characters: %.200q", about, text)
	}
	held, _ := errors.AsType[*lease.HeldError](err)
	made, _ := errors.AsType[*lease.Error](err)
	if held == nil && (made == nil || made.Class == nil) {
		t.Errorf("%s: an error of no class: %.200q", about, text)
	}
}
