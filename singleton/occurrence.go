package singleton

import (
	"slices"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// placeholder is what EventBridge Scheduler replaces by the scheduled instant before it delivers.
const placeholder = "<aws.scheduler.scheduled-time>"

// wallLayouts are ways to write a time of day without an offset.
var wallLayouts = []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"}

// ParseOccurrence reads an occurrence as schedulers write it: RFC 3339 with any offset, with or without a fraction. The
// same instant gives the same whole UTC second however it is written. Text without an offset is an error, because its
// meaning would depend on the host; see LocalTime.
func ParseOccurrence(text string) (time.Time, error) {
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err == nil {
		occ, err := seconds(t)
		return instant(occ), err
	}
	switch {
	case text == "":
		return time.Time{}, invalid("the occurrence is empty; it is an instant such as 2026-03-02T06:00:00Z")
	case strings.Contains(text, placeholder):
		return time.Time{}, invalid("%s was not replaced: only EventBridge Scheduler does that, in the input of a schedule's target",
			placeholder)
	}
	if _, ok := wallTime(text); ok {
		return time.Time{}, invalid("%.40q has no UTC offset: append Z or one such as +02:00, or give its zone to LocalTime", text)
	}
	if _, err := time.Parse(time.DateOnly, text); err == nil {
		return time.Time{}, invalid("%.40q has no time of day and no UTC offset; write it as 2026-03-02T06:00:00Z", text)
	}
	return time.Time{}, invalid("%.40q is not an instant in RFC 3339, such as 2026-03-02T06:00:00Z", text)
}

// LocalTime is the instant at which the wall clocks in an IANA zone, such as America/New_York, show text (2006-01-02T15:04
// or 2006-01-02T15:04:05, with T or a space). A time that the clocks skip or show twice is an error that names both
// candidates. Missing zone data is an error too, never UTC.
func LocalTime(zone, text string) (time.Time, error) {
	if zone == "" || zone == "Local" {
		return time.Time{}, invalid("zone %q depends on the host; give an IANA name such as America/New_York", zone)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return time.Time{}, invalid("zone %.40q is unknown, or this host has no zone data (package tzdata, or import time/tzdata): %w", zone, err)
	}
	wall, ok := wallTime(text)
	if !ok {
		return time.Time{}, invalid("%.40q is not a local time such as 2026-03-02T06:00:00, without an offset", text)
	}
	var shown, skipped []time.Time
	for _, offset := range offsetsAround(wall, loc) {
		at := wall.Add(-offset)
		if _, got := at.In(loc).Zone(); time.Duration(got)*time.Second == offset {
			shown = append(shown, at)
		} else {
			skipped = append(skipped, at)
		}
	}
	switch len(shown) {
	case 1:
		occ, err := seconds(shown[0])
		return instant(occ), err
	case 0:
		return time.Time{}, invalid("%s does not exist in %s, the clocks skip it; write %s", text, zone, choices(skipped))
	}
	return time.Time{}, invalid("%s is shown twice in %s; write %s", text, zone, choices(shown))
}

// wallTime reads text as a time of day without an offset, as if it were UTC.
func wallTime(text string) (time.Time, bool) {
	for _, layout := range wallLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// offsetsAround are the UTC offsets in force in loc near wall. No zone is more than a day off UTC.
func offsetsAround(wall time.Time, loc *time.Location) []time.Duration {
	var offsets []time.Duration
	for t, last := wall.Add(-26*time.Hour).In(loc), wall.Add(26*time.Hour); !t.After(last); {
		_, seconds := t.Zone()
		if offset := time.Duration(seconds) * time.Second; !slices.Contains(offsets, offset) {
			offsets = append(offsets, offset)
		}
		_, end := t.ZoneBounds()
		if end.IsZero() {
			break
		}
		t = end
	}
	return offsets
}

func choices(at []time.Time) string {
	slices.SortFunc(at, time.Time.Compare)
	text := make([]string, len(at))
	for i, t := range at {
		text[i] = t.UTC().Format(time.RFC3339)
	}
	return strings.Join(text, " or ")
}

// seconds is the occurrence of at: its whole UTC second, after 1970.
func seconds(at time.Time) (int64, error) {
	if at.Unix() <= 0 || at.Year() > 9999 {
		return 0, invalid("the occurrence %v is not between 1970 and 9999; it comes from the schedule, not from a zero value",
			at.UTC().Format(time.RFC3339))
	}
	return at.Unix(), nil
}

// instant is the occurrence of unix seconds, zero for none.
func instant(occ int64) time.Time {
	if occ <= 0 {
		return time.Time{}
	}
	return time.Unix(occ, 0).UTC()
}

func stamp(occ int64) string { return instant(occ).Format(time.RFC3339) }

func invalid(format string, args ...any) error {
	return lease.Invalid("read the occurrence", "", format, args...)
}
