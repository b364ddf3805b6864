package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/cloudlease/cloudlease/functions/internal/environ"
)

// timeoutSetting overrides host.json, for the host and so for this process.
const timeoutSetting = "AzureFunctionsJobHost__functionTimeout"

// minLimit leaves a run time beside the least reserve.
const minLimit = 3 * time.Second

// limitOf is how long the host lets an invocation take: what it reads itself, so that the two cannot differ.
func limitOf(r *environ.Reader) time.Duration {
	text, where := r.Get(timeoutSetting), "the environment variable "+timeoutSetting
	if text == "" {
		file := filepath.Join(r.Or("FUNCTIONS_APP_ROOT_PATH", "."), "host.json")
		where = "functionTimeout of " + file
		var host struct{ FunctionTimeout string }
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &host)
		}
		if err != nil {
			r.Fault(fmt.Errorf("read %s: %w", where, err))
			return 0
		}
		text = host.FunctionTimeout
	}
	limit, ok := timeSpan(text)
	if !ok || limit < minLimit {
		r.Fault(fmt.Errorf("%s is %.40q; it is a time such as 00:05:00, %v or more: a run without an end would keep its lock for ever",
			where, text, minLimit))
	}
	return limit
}

// spans are what the host takes for a time span: days, hours, minutes and seconds.
var spans = regexp.MustCompile(`^(?:(\d{1,4})\.)?(\d{1,2}):(\d{2}):(\d{2})$`)

func timeSpan(text string) (time.Duration, bool) {
	parts := spans.FindStringSubmatch(text)
	if parts == nil {
		return 0, false
	}
	var d time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi(parts[i+1]) // digits, or nothing for no days
		d += time.Duration(n) * unit
	}
	return d, true
}

// reserveOf is what a run leaves of its invocation's limit for the release and the answer.
func reserveOf(limit time.Duration) time.Duration {
	return min(max(limit/10, time.Second), 10*time.Second)
}

// zoneOf is the zone of the app's times, by the setting that the host reads.
func zoneOf(r *environ.Reader) string { return r.Or("WEBSITE_TIME_ZONE", r.Or("TZ", "UTC")) }
