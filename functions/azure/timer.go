package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/singleton"
)

// occurrence is the scheduled instant of an invocation, as the host posts it. zone is that of times without an offset.
func occurrence(body []byte, zone string) (time.Time, error) {
	var in struct {
		Data struct{ Timer json.RawMessage } // by the trigger's name in function.json
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return time.Time{}, fmt.Errorf("the request is no invocation: %w", err)
	}
	data := in.Data.Timer
	for range 2 { // the host may pass text on as a string, and its JSON as another
		var text string
		if json.Unmarshal(data, &text) != nil {
			break
		}
		data = json.RawMessage(text)
	}
	if len(data) == 0 {
		return time.Time{}, errors.New(`the invocation has no data under "timer", the trigger's name in function.json`)
	}
	var timer struct {
		ScheduleStatus *struct{ Next string }
	}
	if err := json.Unmarshal(data, &timer); err != nil {
		return time.Time{}, fmt.Errorf("the invocation's data are no timer's: %w", err)
	}
	switch status := timer.ScheduleStatus; {
	case status == nil || status.Next == "":
		return time.Time{}, errors.New("the timer tells no schedule: set useMonitor in function.json, and a schedule of a minute or more")
	case strings.HasPrefix(status.Next, "0001-"):
		return time.Time{}, errors.New("the timer does not know its schedule yet")
	default:
		return instant(status.Next, zone)
	}
}

// zoned are the ways to write an instant with an offset that hosts have; Parse takes fractions with all of them.
var zoned = []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 Z07:00", "2006-01-02T15:04:05Z0700"}

// instant reads a time as a host writes it: with an offset, or in the app's zone without.
func instant(text, zone string) (time.Time, error) {
	text = strings.TrimSpace(text)
	for _, layout := range zoned {
		if at, err := time.Parse(layout, text); err == nil {
			return singleton.ParseOccurrence(at.Format(time.RFC3339))
		}
	}
	wall, _, _ := strings.Cut(text, ".") // a fraction of a second is below what tells occurrences apart
	at, err := singleton.LocalTime(zone, wall)
	if err != nil {
		return time.Time{}, fmt.Errorf("the timer's Next: %w", err)
	}
	return at, nil
}
