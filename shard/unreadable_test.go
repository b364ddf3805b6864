package shard_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/shard"
)

// TestErrorsOfForeignRecordsCanBeShown: an oversized or malformed record is refused, and not repeated.
func TestErrorsOfForeignRecordsCanBeShown(t *testing.T) {
	const huge = 1 << 20
	row := func(text string) error { _, err := shard.CheckRow([]byte(text)); return err }
	roster := func(text string) error { _, _, err := shard.CheckRoster([]byte(text)); return err }
	for name, c := range map[string]struct {
		check func(string) error
		text  string
	}{
		"a row, empty":                   {row, ""},
		"a row, oversized":               {row, strings.Repeat("x", huge)},
		"a row, deep":                    {row, strings.Repeat("[", huge)},
		"a row, control characters":      {row, "\x00\x1b[2J\n"},
		"a row, a controlling format":    {row, `{"v":"\u001b[2J\n"}`},
		"a row, an oversized position":   {row, `{"v":1,"token":5,"at":"` + strings.Repeat("x", huge) + `"}`},
		"a row, many parents":            {row, `{"v":1,"token":5,"parents":["` + strings.Repeat(`x","`, huge/4) + `"]}`},
		"a row, a reason that is none":   {row, `{"v":1,"token":5,"parked":"\u001b[2J\n"}`},
		"a row, an oversized number":     {row, `{"v":` + strings.Repeat("9", huge) + `}`},
		"a row, an oversized name":       {row, `{"` + strings.Repeat("x", huge) + `":1}`},
		"a roster, an oversized number":  {roster, `{"v":1,"members":["` + strings.Repeat("9", huge) + `:a:0:0:x"]}`},
		"a roster, an oversized token":   {roster, `{"v":1,"members":["3:` + strings.Repeat("z", huge) + `:0:0:x"]}`},
		"a roster, a huge format":        {roster, `{"v":` + strings.Repeat("9", huge) + `}`},
		"a roster, many faults":          {roster, `{"v":1,"members":["three:#:x:y:z"]}`},
		"a roster, empty":                {roster, ""},
		"a roster, oversized":            {roster, strings.Repeat("x", huge)},
		"a roster, deep":                 {roster, strings.Repeat("[", huge)},
		"a roster, control characters":   {roster, "\x00\x1b[2J\n"},
		"a roster, an oversized member":  {roster, `{"v":1,"members":["` + strings.Repeat("x", huge) + `"]}`},
		"a roster, a controlling member": {roster, `{"v":1,"members":["\u001b[2J\n:a:0:0:x"]}`},
		"a roster, no UTF-8":             {roster, "{\"v\":1,\"members\":[\"\xff\xfe\"]}"},
		"a roster, a wrong type":         {roster, `{"v":1,"members":{"\u001b[2J\n":7}}`},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.check(c.text)
			require.ErrorContains(t, err, "was not written by this library")
			require.Less(t, len(err.Error()), 700, "%.300q", err.Error())
			require.False(t, strings.ContainsFunc(err.Error(), unicode.IsControl), "%.300q", err.Error())
		})
	}
}
