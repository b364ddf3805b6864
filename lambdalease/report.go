package lambdalease

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/cloudlease/cloudlease/singleton"
)

// isNamespace tells whether CloudWatch takes a name of 1 to 255 characters, apart from its own namespaces. No regular expression: its
// compilation, with such a count, would be the longest part of a cold start.
func isNamespace(name string) bool {
	other := func(c rune) bool {
		plain := '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		return !plain && !strings.ContainsRune("._/#: -", c)
	}
	return name != "" && len(name) <= 255 && name[0] != ' ' && !strings.ContainsFunc(name, other)
}

// The counts, of which every invocation adds one to one.
const (
	countRan     = "ran"
	countSkipped = "skipped" // already-done, stale or busy: a success
	countRunning = "running" // the occurrence runs elsewhere: an error, to be delivered again
	countStale   = "stale"   // a fence refused a write of the handler
	countLost    = "lost"
	countFailed  = "failed"
	countInDoubt = "in_doubt"
	countNotRun  = "not_run" // no occurrence in the event, or no answer from the store
)

var counts = []string{
	countRan, countSkipped, countRunning, countStale, countLost, countFailed, countInDoubt, countNotRun,
}

// countOf is the count that a delivery adds to.
func countOf(res singleton.Result, err error) string {
	switch res.Outcome {
	case singleton.Ran:
		return countRan
	case singleton.Busy:
		if err != nil { // with EveryOccurrence it is delivered again
			return countRunning
		}
		return countSkipped
	case singleton.AlreadyDone, singleton.Stale, singleton.Paused:
		return countSkipped
	case singleton.Running:
		return countRunning
	case singleton.Refused:
		return countStale
	case singleton.Lost:
		return countLost
	case singleton.Failed, singleton.FailedBefore:
		return countFailed
	case singleton.InDoubt:
		return countInDoubt
	case singleton.NotRun, singleton.Cleared, singleton.Resumed:
	}
	return countNotRun
}

// report tells the log and the metrics how a delivery ended.
func (h *Handler) report(ctx context.Context, res singleton.Result, err error) {
	request := ""
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		request = lc.AwsRequestID
	}
	h.log(ctx, res, err, request)
	h.count(res, err, request)
}

func (h *Handler) log(ctx context.Context, res singleton.Result, err error, request string) {
	log, level := h.opt.Logger, slog.LevelInfo
	if log == nil {
		log = slog.Default()
	}
	attrs := []slog.Attr{slog.String("job", res.Job), slog.String("outcome", string(res.Outcome)), slog.String("request_id", request)}
	if !res.Occurrence.IsZero() {
		attrs = append(attrs, slog.String("occurrence", res.Occurrence.Format(time.RFC3339)))
	}
	if res.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", uint64(res.Token)), slog.String("holder", res.Holder))
	}
	if res.Held != 0 {
		attrs = append(attrs, slog.Duration("held", res.Held))
	}
	if res.Waited != 0 {
		attrs = append(attrs, slog.Duration("waited", res.Waited))
	}
	if res.Unguarded {
		level = slog.LevelWarn
		attrs = append(attrs, slog.Bool("unguarded", true))
	}
	if res.Release != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("not recorded", res.Release.Error()))
	}
	if err != nil {
		level = slog.LevelError
		if res.Outcome == singleton.Running || res.Outcome == singleton.Busy {
			level = slog.LevelWarn
		}
		attrs = append(attrs, slog.String("err", err.Error()))
	}
	log.LogAttrs(ctx, level, "singleton delivery", attrs...)
}

// count writes one line of CloudWatch's embedded metric format. Every count is there, 0 or 1, so that alarms have data.
func (h *Handler) count(res singleton.Result, err error, request string) {
	line := map[string]any{
		"Job": ascii(res.Job), "outcome": string(res.Outcome), "request_id": request,
	}
	var metrics []map[string]string
	for _, name := range counts {
		metrics = append(metrics, map[string]string{"Name": name, "Unit": "Count"})
		line[name] = 0
	}
	line[countOf(res, err)] = 1
	if res.Held > 0 {
		metrics = append(metrics, map[string]string{"Name": "HoldTime", "Unit": "Milliseconds"})
		line["HoldTime"] = res.Held.Milliseconds()
	}
	if !res.Occurrence.IsZero() {
		line["occurrence"] = res.Occurrence.Format(time.RFC3339)
	}
	if res.Token != 0 {
		line["token"] = res.Token
	}
	line["_aws"] = map[string]any{
		"Timestamp": h.c.Clock()().Wall.UnixMilli(),
		"CloudWatchMetrics": []map[string]any{{
			"Namespace": h.opt.Namespace, "Dimensions": [][]string{{"Job"}}, "Metrics": metrics,
		}},
	}
	text, err := json.Marshal(line)
	if err != nil {
		return // strings and numbers always encode
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	_, _ = h.opt.Metrics.Write(append(text, '\n')) // a metric that cannot be written is no reason to fail the job
}

// ascii is s in the characters that a dimension's value may have: others are escaped as in Go.
func ascii(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r <= '~' {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
