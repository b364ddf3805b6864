package lambdalease

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/cloudlease/cloudlease/internal/excerpt"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// MaxEvent is the largest event, in bytes, that Occurrence reads. Scheduled events have a few hundred.
const MaxEvent = 256 << 10

// What an event must look like, for errors.
const shapes = `an event names its occurrence as an EventBridge rule does ("source":"aws.events","detail-type":"Scheduled Event",` +
	`"time":"2026-03-02T06:00:00Z"), by a Scheduler target's input {"time":"<aws.scheduler.scheduled-time>"}, ` +
	`or by hand as {"occurrence":"2026-03-02T06:00:00Z"}`

// scheduledKeys are the keys under which people pass on EventBridge Scheduler's scheduled time.
var scheduledKeys = []string{"time", "scheduled-time", "scheduledTime", "scheduled_time"}

// Occurrence reads the scheduled instant from an event:
//
//   - an EventBridge rule's scheduled event: its "time". If "source" or "detail-type" is there, it has to be "aws.events" and
//     "Scheduled Event"; the time of any other event is when something happened.
//   - the input of an EventBridge Scheduler target: "<aws.scheduler.scheduled-time>" as a bare JSON string, or under "time",
//     "scheduled-time", "scheduledTime" or "scheduled_time"
//   - a manual call: {"occurrence": "2026-03-02T06:00:00Z"}, which wins over the others
//
// The instant is in RFC 3339 (singleton.ParseOccurrence). Anything else is an error of class lease.ErrInvalid.
func Occurrence(event []byte) (time.Time, error) {
	if len(event) > MaxEvent {
		return time.Time{}, invalid("the event has %d bytes, more than %d; %s", len(event), MaxEvent, shapes)
	}
	if event = bytes.TrimSpace(event); len(event) > 0 && event[0] == '"' {
		return instant("the event", event)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(event, &fields); err != nil {
		return time.Time{}, invalid("the event is no JSON object: %w; %s", err, shapes)
	}
	if text, ok := fields["occurrence"]; ok {
		return instant(`"occurrence"`, text)
	}
	return scheduled(fields)
}

// scheduled reads the scheduled time of a rule's event or of a Scheduler input.
func scheduled(fields map[string]json.RawMessage) (at time.Time, err error) {
	found := ""
	for _, key := range scheduledKeys {
		text, ok := fields[key]
		if !ok {
			continue
		}
		if err := foreign(fields); key == "time" && err != nil {
			return time.Time{}, err
		}
		next, err := instant(`"`+key+`"`, text)
		switch {
		case err != nil:
			return time.Time{}, err
		case found != "" && !next.Equal(at):
			return time.Time{}, invalid("%q and %q of the event are two instants, %s and %s", found, key,
				at.Format(time.RFC3339), next.Format(time.RFC3339))
		}
		at, found = next, key
	}
	if found == "" {
		return time.Time{}, invalid("the event has no scheduled time, and the time of the call is none; %s", shapes)
	}
	return at, nil
}

// foreign is an error if the fields are those of an event of another kind.
func foreign(fields map[string]json.RawMessage) error {
	for key, want := range map[string]string{"source": "aws.events", "detail-type": "Scheduled Event"} {
		text, ok := fields[key]
		if !ok {
			continue
		}
		var have string
		if err := json.Unmarshal(text, &have); err != nil || have != want {
			return invalid("the event's %q is %s, not %q: its time is when something happened, not a schedule's; %s", key, excerpt.Of(string(text), 60), want, shapes)
		}
	}
	return nil
}

// instant reads an occurrence from a JSON string.
func instant(what string, text []byte) (time.Time, error) {
	var s string
	if err := json.Unmarshal(text, &s); err != nil || len(text) == 0 || text[0] != '"' {
		return time.Time{}, invalid("%s is %s, not an instant in a string; %s", what, excerpt.Of(string(text), 60), shapes)
	}
	return singleton.ParseOccurrence(s)
}

func invalid(format string, args ...any) error {
	return lease.Invalid("read the event", "", format, args...)
}
