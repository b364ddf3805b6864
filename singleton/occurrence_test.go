package singleton_test

import (
	"os"
	"os/exec"
	"testing"
	"time"
	_ "time/tzdata" // the cases must not depend on what is installed

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// spellings are one instant, as the case writes it and a few more.
var spellings = []string{
	"2026-11-01T01:30:00-04:00", "2026-11-01T05:30:00Z", "2026-11-01T05:30:00+00:00", "2026-11-01T05:30:00.000Z",
	"2026-11-01T01:30:00.000-04:00", "2026-11-01T11:00:00+05:30", "2026-11-01T05:30:00.999999999Z",
}

var localTimes = []struct{ zone, text, want string }{
	{"America/New_York", "2026-11-01T03:30", "2026-11-01T08:30:00Z"},
	{"America/New_York", "2026-07-01 06:00:00", "2026-07-01T10:00:00Z"},
	{"America/New_York", "2026-03-08T01:59:59", "2026-03-08T06:59:59Z"},
	{"America/New_York", "2026-03-08T03:00:00", "2026-03-08T07:00:00Z"},
	{"Asia/Kolkata", "2026-03-02 11:30", "2026-03-02T06:00:00Z"},
	{"Pacific/Kiritimati", "2026-03-02T06:00", "2026-03-01T16:00:00Z"},
	{"UTC", "2026-03-02T06:00", "2026-03-02T06:00:00Z"},
}

func TestSF07_OneInstantIsOneKey(t *testing.T) {
	for _, text := range spellings {
		at, err := singleton.ParseOccurrence(text)
		require.NoError(t, err)
		require.Equal(t, time.Date(2026, 11, 1, 5, 30, 0, 0, time.UTC), at, text)
	}
}

// TestSF07_TheHourThatComesTwice: two instants of one local text are two occurrences, one run each.
func TestSF07_TheHourThatComesTwice(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for _, text := range []string{"2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"} {
			w.until(text)
			for _, want := range []singleton.Outcome{singleton.Ran, singleton.AlreadyDone} {
				at, err := singleton.ParseOccurrence(text)
				require.NoError(t, err)
				newYork, err := time.LoadLocation("America/New_York")
				require.NoError(t, err)
				require.Equal(t, "01:30", at.In(newYork).Format("15:04"))
				res, err := w.host(6*time.Second, nil).deliver(t.Context(), at.In(newYork), time.Second, nil)
				require.NoError(t, err)
				require.Equal(t, want, res.Outcome)
			}
		}
		require.Len(t, w.journal.occurrences(), 2)
	})
}

func TestSF07_LocalTimes(t *testing.T) {
	for _, c := range localTimes {
		at, err := singleton.LocalTime(c.zone, c.text)
		require.NoError(t, err)
		require.Equal(t, c.want, at.Format(time.RFC3339Nano), "%s in %s", c.text, c.zone)
	}
}

// TestSF07_NeverAWrongInstant: skipped and repeated local times, and zones that are not known here.
func TestSF07_NeverAWrongInstant(t *testing.T) {
	for _, c := range []struct {
		name, zone, text string
		says             []string
	}{
		{"skipped in spring", "America/New_York", "2026-03-08T02:30:00", []string{"does not exist", "2026-03-08T06:30:00Z", "2026-03-08T07:30:00Z"}},
		{"twice in autumn", "America/New_York", "2026-11-01 01:30", []string{"twice", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"}},
		{"half an hour twice", "Australia/Lord_Howe", "2026-04-05T01:45", []string{"twice", "2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z"}},
		{"a day that was left out", "Pacific/Apia", "2011-12-30T12:00", []string{"does not exist", "2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z"}},
		{"unknown zone, as without zone data", "America/Nowhere", "2026-03-02T06:00", []string{"tzdata", "America/Nowhere"}},
		{"path as a zone", "../etc/passwd", "2026-03-02T06:00", []string{"unknown"}},
		{"no zone", "", "2026-03-02T06:00", []string{"IANA"}},
		{"the host's zone", "Local", "2026-03-02T06:00", []string{"IANA"}},
		{"with an offset", "America/New_York", "2026-03-02T06:00:00Z", []string{"without an offset"}},
		{"nonsense", "America/New_York", "tomorrow", []string{"not a local time"}},
		{"before 1970", "America/New_York", "1969-12-31T18:00", []string{"1970"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			at, err := singleton.LocalTime(c.zone, c.text)
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.True(t, at.IsZero(), at)
			for _, part := range c.says {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

func TestSF07_TextsThatAreNoInstants(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "empty"},
		{"<aws.scheduler.scheduled-time>", "EventBridge Scheduler"},
		{"2026-03-02T06:00:00", "no UTC offset"},
		{"2026-03-02 06:00", "no UTC offset"},
		{"2026-03-02", "no time of day"},
		{"1772431200", "RFC 3339"},
		{"now", "RFC 3339"},
		{"2026-13-02T06:00:00Z", "RFC 3339"},
		{"2026-02-30T06:00:00Z", "RFC 3339"},
		{"2026-03-02T24:00:00Z", "RFC 3339"},
		{"0001-01-01T00:00:00Z", "1970"},
		{"1970-01-01T00:00:00Z", "1970"},
	} {
		at, err := singleton.ParseOccurrence(c.text)
		require.ErrorIs(t, err, lease.ErrInvalid, c.text)
		require.ErrorContains(t, err, c.says)
		require.True(t, at.IsZero(), at)
	}
}

// TestSF07_SameKeysInEveryProcessZone repeats the texts in processes with other time zones, one of which does not exist.
func TestSF07_SameKeysInEveryProcessZone(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	want := ""
	for _, zone := range []string{"UTC", "America/New_York", "Asia/Kolkata", "Not/AZone"} {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), printKeys+"=1", "TZ="+zone)
		out, err := cmd.Output()
		require.NoError(t, err)
		if want == "" {
			want = string(out)
			require.Contains(t, want, "2026-11-01 05:30:00 +0000 UTC <nil>")
		}
		require.Equal(t, want, string(out), zone)
	}
}

func FuzzParseOccurrence(f *testing.F) {
	for _, text := range spellings {
		f.Add(text)
	}
	f.Add("<aws.scheduler.scheduled-time>")
	f.Fuzz(func(t *testing.T, text string) {
		at, err := singleton.ParseOccurrence(text)
		if err != nil {
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.True(t, at.IsZero())
			return
		}
		require.Equal(t, time.UTC, at.Location())
		require.Zero(t, at.Nanosecond())
		require.Positive(t, at.Unix())
		again, err := singleton.ParseOccurrence(at.Format(time.RFC3339))
		require.NoError(t, err)
		require.Equal(t, at, again)
	})
}
