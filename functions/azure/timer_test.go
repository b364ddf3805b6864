package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
)

func quote(s string) string {
	b, _ := json.Marshal(s) // strings always encode
	return string(b)
}

// TestSF07_OneInstantIsOneOccurrence: however the host writes the scheduled instant, and in whatever zone the app lives.
func TestSF07_OneInstantIsOneOccurrence(t *testing.T) {
	want := time.Date(2026, 11, 1, 5, 30, 0, 0, time.UTC)
	for _, zone := range []string{"UTC", "America/New_York", "Asia/Kolkata", "Eastern Standard Time", "nowhere"} {
		for _, text := range []string{
			"2026-11-01T01:30:00-04:00", "2026-11-01T05:30:00Z", "2026-11-01T05:30:00+00:00", "2026-11-01T05:30:00.0000000Z",
			"2026-11-01T05:30:00.9999999+00:00", "2026-11-01 05:30:00Z", "2026-11-01 05:30:00 +00:00", "2026-11-01T11:00:00+0530",
			" 2026-11-01T05:30:00Z ",
		} {
			at, err := occurrence([]byte(invocation(timer(text))), zone)
			require.NoError(t, err, text)
			require.True(t, want.Equal(at), "%s is %s", text, at)
		}
	}
}

// TestSF07_LocalTimes: without an offset the time is the app's, and never a wrong instant.
func TestSF07_LocalTimes(t *testing.T) {
	for _, c := range []struct{ zone, text, want, says string }{
		{"UTC", "2026-03-02T00:05:00", "2026-03-02T00:05:00Z", ""},
		{"UTC", "2026-03-02T00:05:00.0000000", "2026-03-02T00:05:00Z", ""},
		{"America/New_York", "2026-03-02T00:05:00", "2026-03-02T05:05:00Z", ""},
		{"Asia/Kolkata", "2026-03-02 00:05:00", "2026-03-01T18:35:00Z", ""},
		{"America/New_York", "2026-11-01T01:30:00", "", "shown twice"},
		{"America/New_York", "2026-03-08T02:30:00", "", "does not exist"},
		{"Eastern Standard Time", "2026-03-02T00:05:00", "", "Eastern Standard Time"},
		{"UTC", "soon", "", "soon"},
		{"UTC", "03/02/2026 00:05:00", "", "03/02/2026"},
		{"UTC", "1969-12-31T00:05:00Z", "", "1970"},
	} {
		at, err := occurrence([]byte(invocation(timer(c.text))), c.zone)
		if c.says != "" {
			require.ErrorContains(t, err, c.says, c.text)
			continue
		}
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, at.Format(time.RFC3339), c.text)
	}
}

// The forms in which hosts and versions pass a timer on.
func TestTimerData(t *testing.T) {
	status := `{"ScheduleStatus":{"Next":"2026-03-02T00:05:00Z"}}`
	for name, data := range map[string]string{
		"as in the manual":            timer(due),
		"as text":                     quote(timer(due)),
		"as JSON of text":             quote(quote(timer(due))),
		"in camel case":               `{"schedule":{},"scheduleStatus":{"last":"x","next":"2026-03-02T00:05:00Z"},"isPastDue":false}`,
		"with a last that is no time": `{"ScheduleStatus":{"Last":"0001-01-01T00:00:00","Next":"2026-03-02T00:05:00Z","LastUpdated":7}}`,
		"past due":                    `{"ScheduleStatus":{"Next":"2026-03-02T00:05:00Z"},"IsPastDue":true}`,
		"alone":                       status,
	} {
		at, err := occurrence([]byte(invocation(data)), "UTC")
		require.NoError(t, err, name)
		require.Equal(t, "2026-03-02T00:05:00Z", at.Format(time.RFC3339), name)
	}
}

// TestSF02_NoScheduledTimeIsAnError: neither the call's time nor the metadata's stands in for it.
func TestSF02_NoScheduledTimeIsAnError(t *testing.T) {
	for body, says := range map[string]string{
		invocation(`{"ScheduleStatus":null,"IsPastDue":false}`): "useMonitor",
		invocation(`{"ScheduleStatus":{"Last":"2026-03-01"}}`):  "useMonitor",
		invocation(timer("0001-01-01T00:00:00")):                "does not know its schedule",
		invocation(`{"ScheduleStatus":{"Next":1772409900}}`):    "no timer's",
		invocation(`"2026-03-02T00:05:00Z"`):                    "no timer's",
		invocation(`{"occurrence":"2026-03-02T00:05:00Z"}`):     "useMonitor",
		invocation(`[1]`):                   "no timer's",
		invocation(`null`):                  `"timer"`,
		`{"Data":{"req":{}},"Metadata":{}}`: `"timer"`,
		`{"Data":[]}`:                       "no invocation",
		`{}`:                                `"timer"`,
		`null`:                              `"timer"`,
		``:                                  "no invocation",
		`{"Data":`:                          "no invocation",
		invocation(timer(due)) + invocation(timer(due)): "no invocation",
		`<html>`: "no invocation",
		invocation(quote(quote(quote(timer("2026-03-02T00:05Z"))))): "no timer's",
	} {
		at, err := occurrence([]byte(body), "UTC")
		require.ErrorContains(t, err, says, body)
		require.True(t, at.IsZero())
	}
}

// TestEventsAreNotRepeated: the error of an oversized or malformed event can be shown, and does not repeat the event.
func TestEventsAreNotRepeated(t *testing.T) {
	const huge = 1 << 20
	for name, body := range map[string]string{
		"an oversized invocation": `{"Data":{"timer":"` + strings.Repeat("x", huge),
		"oversized data":          invocation(quote(strings.Repeat("x", huge))),
		"an oversized number":     invocation(strings.Repeat("9", huge)),
		"numbers for texts":       `{"Data":` + strings.Repeat("9", huge) + `}`,
		"an oversized Next":       invocation(timer(strings.Repeat("x", huge))),
		"a Next of digits":        invocation(timer("2026-03-02T00:05:00." + strings.Repeat("9", huge) + "Z")),
		"a deep invocation":       strings.Repeat("[", huge),
		"deep data":               `{"Data":{"timer":` + strings.Repeat("[", huge),
		"a controlling Next":      invocation(`{"ScheduleStatus":{"Next":"\u001b[2J\u0000\n"}}`),
		"a controlling body":      "\x00\x1b[2J\n",
		"a Next that is no text":  invocation(`{"ScheduleStatus":{"Next":["\u001b[2J"]}}`),
		"a schedule that is none": invocation(`{"ScheduleStatus":"\u001b[2J"}`),
		"no UTF-8":                invocation(timer("\xff\xfe")),
	} {
		at, err := occurrence([]byte(body), "UTC")
		if name == "a Next of digits" && err == nil {
			continue // it is an instant, in far too many words
		}
		require.Error(t, err, name)
		require.True(t, at.IsZero(), name)
		require.Less(t, len(err.Error()), 700, "%s: %.200q", name, err.Error())
		require.False(t, strings.ContainsFunc(err.Error(), unicode.IsControl), "%s: %.200q", name, err.Error())
	}
}

func FuzzOccurrence(f *testing.F) {
	f.Add([]byte(invocation(timer(due))))
	f.Add([]byte(invocation(quote(timer("2026-03-02T00:05:00")))))
	f.Add([]byte(`{"Data":{"timer":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		at, err := occurrence(body, "America/New_York")
		if err != nil {
			require.True(t, at.IsZero())
			return
		}
		require.Positive(t, at.Unix())
		require.Zero(t, at.Nanosecond())
		again, err := occurrence([]byte(invocation(timer(at.Format(time.RFC3339)))), "UTC")
		require.NoError(t, err)
		require.True(t, at.Equal(again))
	})
}
