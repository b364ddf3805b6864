package bloblease_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"unicode"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

// foreignMetadata are values that this library does not write. Metadata travel as headers, which have no control characters and at
// most 8 KB.
var foreignMetadata = map[string]string{
	"empty":                "",
	"a text":               "seventy-seven",
	"negative":             "-1",
	"a fraction":           "1.5",
	"out of range":         "9007199254740992",
	"beyond 64 bits":       "99999999999999999999999999",
	"an oversized number":  strings.Repeat("9", 7000),
	"an oversized text":    strings.Repeat("x", 7000),
	"no base64url":         "%%%",
	"base64 of the other":  base64.StdEncoding.EncodeToString([]byte("\xff\xfe\xfd?")),
	"a controlling text":   base64.RawURLEncoding.EncodeToString([]byte("\x1b[2J\x00\n")),
	"no UTF-8":             base64.RawURLEncoding.EncodeToString([]byte("\xff\xfe")),
	"a number with spaces": " 7 ",
	"a hexadecimal number": "0x7",
}

var metadataNames = []string{
	"token", "holder", "since", "value", "started", "finished", "running", "before", "freed", "brokenby", "brokenwhy", "brokentoken", "brokenat",
}

// TestUnreadableMetadata: whatever a lock's blob has as metadata, no operation panics, no grant has a token that is none, and an error
// says what is wrong in a few words that a terminal can show.
func TestUnreadableMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		h := s.host(t, nil)
		n := 0
		for what, value := range foreignMetadata {
			for _, name := range metadataNames {
				n++
				lock, about := fmt.Sprint("x", n), name+": "+what
				metadata := map[string]*string{"token": new("77"), name: &value}
				_, err := s.sdk(t, nil).NewPageBlobClient("cloudlease/locks/"+lock).Create(t.Context(), pageblob.PageBytes, &pageblob.CreateOptions{
					SequenceNumber: new(int64(77)), Metadata: metadata,
				})
				require.NoError(t, err, about)
				info, err := h.Inspect(t.Context(), lock)
				showable(t, err, about)
				if err == nil {
					require.Equal(t, lease.Token(77), info.Token, about)
				}
				for _, err := range h.List(t.Context(), lock) {
					showable(t, err, about)
				}
				r := request(lock)
				r.Mark = &lease.Mark{Occurrence: 7}
				_, err = h.TryAcquire(t.Context(), r)
				showable(t, err, about)
				g, err := h.TryAcquire(t.Context(), request(lock))
				showable(t, err, about)
				if err == nil {
					require.LessOrEqual(t, g.Token, lease.MaxToken, about)
					_, err = h.Save(t.Context(), g, []byte("v"))
					showable(t, err, about)
					showable(t, h.Release(t.Context(), g, lease.Final{}), about)
				}
				showable(t, h.Break(t.Context(), lock, 77, why), about)
				showable(t, h.RaiseFloor(t.Context(), lock, 78), about)
			}
		}
	})
}

// TestUnreadableRecords: a record that this library did not write is refused, and not guessed.
func TestUnreadableRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		h := s.host(t, nil)
		n, refused := 0, 0
		for what, value := range foreignMetadata {
			for _, name := range []string{"revision", "data"} {
				n++
				key, about := fmt.Sprint("k", n), name+": "+what
				metadata := map[string]*string{"revision": new("7"), name: &value}
				_, err := s.sdk(t, nil).NewPageBlobClient("cloudlease/records/"+key).Create(t.Context(), pageblob.PageBytes, &pageblob.CreateOptions{
					SequenceNumber: new(int64(0)), Metadata: metadata,
				})
				require.NoError(t, err, about)
				rec, err := h.Load(t.Context(), key)
				showable(t, err, about)
				if err == nil {
					require.EqualValues(t, 7, rec.Version, about)
				} else {
					requireClass(t, err, lease.ErrMisconfigured)
					refused++
				}
				for _, err := range h.Scan(t.Context(), key) {
					showable(t, err, about)
				}
			}
		}
		require.Greater(t, refused, n/2)
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
	passed, _ := errors.AsType[*lease.PassedError](err)
	made, _ := errors.AsType[*lease.Error](err)
	if held == nil && passed == nil && (made == nil || made.Class == nil) {
		t.Errorf("%s: an error of no class: %.200q", about, text)
	}
}
