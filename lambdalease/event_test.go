package lambdalease_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lambdalease"
	"github.com/cloudlease/cloudlease/lease"
)

// rule is what an EventBridge rule sends.
const rule = `{"version":"0","id":"53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa","detail-type":"Scheduled Event","source":"aws.events",
	"account":"123456789012","time":"2026-03-02T06:00:00Z","region":"eu-west-1",
	"resources":["arn:aws:events:eu-west-1:123456789012:rule/nightly"],"detail":{}}`

var goodEvents = []string{
	rule,
	`{"time":"2026-03-02T06:00:00Z"}`,
	`{"scheduled-time":"2026-03-02T06:00:00Z","execution-id":"d32c5kddcf5bb8c3"}`,
	`{"scheduledTime":"2026-03-02T07:00:00+01:00"}`,
	`{"scheduled_time":"2026-03-02T06:00:00.000Z","source":"my.app"}`,
	`"2026-03-02T06:00:00Z"`,
	" \n\"2026-03-02T06:00:00Z\" ",
	`{"occurrence":"2026-03-02T06:00:00Z"}`,
	`{"occurrence":"2026-03-02T06:00:00Z","time":"2026-03-03T06:00:00Z","source":"my.app"}`,
	`{"time":"2026-03-02T06:00:00Z","scheduled-time":"2026-03-02T06:00:00Z"}`,
}

func TestSF02_OccurrenceOfAnEvent(t *testing.T) {
	for _, event := range goodEvents {
		at, err := lambdalease.Occurrence([]byte(event))
		require.NoError(t, err, event)
		require.Equal(t, time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC), at, event)
	}
}

var badEvents = []struct{ name, event, says string }{
	{"no payload", ``, "no JSON object"},
	{"empty object", `{}`, "no scheduled time"},
	{"null", `null`, "no scheduled time"},
	{"array", `["2026-03-02T06:00:00Z"]`, "no JSON object"},
	{"number", `1772431200`, "no JSON object"},
	{"cut off", `{"time":"2026-03-02T06:00`, "no JSON object"},
	{"bare string cut off", `"2026-03-02T06:00:00Z`, "not an instant"},
	{"not JSON", `time=now`, "no JSON object"},
	{"two values", rule + rule, "no JSON object"},
	{"a number of seconds", `{"time":1772431200}`, "not an instant in a string"},
	{"a null time", `{"time":null}`, "not an instant in a string"},
	{"a null occurrence", `{"occurrence":null,"time":"2026-03-02T06:00:00Z"}`, "not an instant in a string"},
	{"no offset", `{"time":"2026-03-02T06:00:00"}`, "no UTC offset"},
	{"not replaced", `{"time":"<aws.scheduler.scheduled-time>"}`, "EventBridge Scheduler"},
	{"another source", `{"source":"aws.s3","detail-type":"Object Created","time":"2026-03-02T06:00:00Z"}`, "when something happened"},
	{"another kind", `{"source":"aws.events","detail-type":"Something","time":"2026-03-02T06:00:00Z"}`, "when something happened"},
	{"a source that is no string", `{"source":1,"time":"2026-03-02T06:00:00Z"}`, "when something happened"},
	{"two instants", `{"time":"2026-03-02T06:00:00Z","scheduled-time":"2026-03-02T06:00:01Z"}`, "two instants"},
	{"keys have one case", `{"Time":"2026-03-02T06:00:00Z"}`, "no scheduled time"},
	{"before 1970", `{"occurrence":"1969-03-02T06:00:00Z"}`, "1970"},
	{"oversized", `{"time":"2026-03-02T06:00:00Z","detail":"` + strings.Repeat("x", lambdalease.MaxEvent) + `"}`, "more than 262144"},
	{"deep", strings.Repeat("[", 100_000), "no JSON object"},
	{"a megabyte", strings.Repeat("x", 1<<20), "more than 262144"},
	{"a long text", `"` + strings.Repeat("x", 200_000) + `"`, "is not an instant"},
	{"a long time", `{"time":"2026-03-02T06:00:00` + strings.Repeat("0", 200_000) + `"}`, "is not an instant"},
	{"a long number", `{"time":` + strings.Repeat("9", 200_000) + `}`, "not an instant in a string"},
	{"a long source", `{"source":"` + strings.Repeat("x", 200_000) + `","time":"2026-03-02T06:00:00Z"}`, "when something happened"},
	{"control characters", `{"time":"\u001b[2J\u0000\n"}`, "is not an instant"},
	{"bare control characters", "\x00\x1b[2J\n", "no JSON object"},
	{"an object on lines", "{\"time\":{\"a\":\n[\n1]}}", "not an instant in a string"},
	{"no UTF-8", "{\"time\":\"\xff\xfe\"}", "is not an instant"},
}

func TestSF02_EventsWithoutAnOccurrence(t *testing.T) {
	for _, c := range badEvents {
		t.Run(c.name, func(t *testing.T) {
			at, err := lambdalease.Occurrence([]byte(c.event))
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, c.says)
			require.True(t, at.IsZero())
			require.Less(t, len(err.Error()), 1500, "an error, not the event")
			require.False(t, strings.ContainsFunc(err.Error(), unicode.IsControl), "%q", err.Error())
		})
	}
	_, err := lambdalease.Occurrence([]byte(`{}`))
	for _, shape := range []string{`"source":"aws.events"`, `{"time":"<aws.scheduler.scheduled-time>"}`, `{"occurrence":`} {
		require.ErrorContains(t, err, shape, "it says what an event must look like")
	}
}

func FuzzOccurrence(f *testing.F) {
	for _, event := range goodEvents {
		f.Add([]byte(event))
	}
	for _, c := range badEvents {
		if len(c.event) < 1000 {
			f.Add([]byte(c.event))
		}
	}
	f.Fuzz(func(t *testing.T, event []byte) {
		given := bytes.Clone(event)
		at, err := lambdalease.Occurrence(event)
		require.Equal(t, given, event, "the event goes on to the handler")
		if err != nil {
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.True(t, at.IsZero())
			return
		}
		require.True(t, json.Valid(event))
		require.Equal(t, time.UTC, at.Location())
		require.Zero(t, at.Nanosecond())
		require.Positive(t, at.Unix())
		again, err := lambdalease.Occurrence(fmt.Appendf(nil, `{"occurrence":%q}`, at.Format(time.RFC3339)))
		require.NoError(t, err)
		require.Equal(t, at, again)
	})
}
