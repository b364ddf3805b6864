package lambdalease_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lambdalease"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// The format that CloudWatch takes metrics out of a log line from.
func TestEmbeddedMetricFormat(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		_, err := invoke(t, c.function(t, settle, &lambdalease.Options{Namespace: "billing"}), 10*time.Second, rule)
		require.NoError(t, err)
		text := c.metrics.String()
		require.Equal(t, 1, strings.Count(text, "\n"))
		require.True(t, strings.HasSuffix(text, "\n"), "one line")
		m := lines(t, &c.metrics)[0]
		aws := m["_aws"].(map[string]any)
		require.EqualValues(t, time.Now().UnixMilli(), aws["Timestamp"])
		directive := aws["CloudWatchMetrics"].([]any)[0].(map[string]any)
		require.Equal(t, "billing", directive["Namespace"])
		require.Equal(t, []any{[]any{"Job"}}, directive["Dimensions"])
		require.Equal(t, job, m["Job"])
		total := 0.0
		for _, metric := range directive["Metrics"].([]any) {
			def := metric.(map[string]any)
			value, ok := m[def["Name"].(string)].(float64)
			require.True(t, ok, "every metric has a number: %v", def)
			if def["Unit"] == "Count" {
				total += value
			} else {
				require.Equal(t, "Milliseconds", def["Unit"])
			}
		}
		require.InDelta(t, 1, total, 0, "an invocation is one of the counts")
		require.EqualValues(t, 1, m["ran"])
		require.Equal(t, "2026-03-02T06:00:00Z", m["occurrence"])
		require.EqualValues(t, 1, m["token"])
		require.Equal(t, "request-1", m["request_id"])
		require.NotContains(t, text+c.logs.String(), "arn:aws", "nothing of the event")
	})
}

func TestEveryOutcomeHasItsCount(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		boom := errors.New("boom")
		fails := func() error { return boom }
		once := &lambdalease.Options{Singleton: singleton.Options{Policy: singleton.AtMostOnce, Wait: -1}}
		at := time.Now()
		event := func() string { return fmt.Sprintf(`{"occurrence":%q}`, at.Format(time.RFC3339)) }
		count := func(name string) {
			t.Helper()
			m := lines(t, &c.metrics)
			require.Len(t, m, 1)
			require.EqualValues(t, 1, m[0][name], m[0])
		}

		_, err := invoke(t, c.function(t, fails, nil), time.Minute, event())
		require.Same(t, boom, err, "unchanged")
		count("failed")

		stale := func(ctx context.Context) error {
			l, _ := lease.FromContext(ctx)
			g := c.service.Store(nil).Guard()
			if err := g.Put(ctx, "result", nil, l.Token()+1, "the next"); err != nil {
				return err
			}
			return g.Put(ctx, "result", nil, l.Token(), l.Holder())
		}
		_, err = invoke(t, c.function(t, stale, nil), time.Minute, event())
		require.ErrorIs(t, err, lease.ErrStale)
		count("stale")

		holder := c.client(t, 6*time.Second, nil)
		l, err := holder.TryAcquireMark(t.Context(), job, lease.Mark{Occurrence: at.Unix()})
		require.NoError(t, err)
		_, err = invoke(t, c.function(t, fails, once), time.Minute, event())
		require.ErrorIs(t, err, singleton.ErrRunning)
		count("running")
		at = at.Add(time.Second)
		out, err := invoke(t, c.function(t, fails, nil), time.Minute, event())
		require.NoError(t, err)
		require.Equal(t, "null", out)
		count("skipped")
		require.NoError(t, l.Release(t.Context()))
		at = at.Add(-time.Second)
		_, err = invoke(t, c.function(t, fails, once), time.Minute, event())
		require.ErrorIs(t, err, lease.ErrInDoubt)
		count("in_doubt")

		at = at.Add(10 * time.Second)
		deaf := func() { time.Sleep(time.Minute) }
		cut := c.client(t, 6*time.Second, func(op string, do func() error) error {
			if op == "renew" {
				return errors.New("no route")
			}
			return do()
		})
		h, err := lambdalease.New(cut, job, deaf, &lambdalease.Options{Metrics: &c.metrics, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		_, err = invoke(t, h, 2*time.Minute, event())
		require.ErrorIs(t, err, lease.ErrLost)
		count("lost")

		_, err = invoke(t, h, time.Minute, `{}`)
		require.ErrorIs(t, err, lease.ErrInvalid)
		count("not_run")

		at = at.Add(10 * time.Second)
		require.PanicsWithValue(t, "boom", func() {
			_, _ = invoke(t, c.function(t, func() { panic("boom") }, nil), time.Minute, event()) // panics
		})
		count("failed")
	})
}

func TestLogTellsWhatElseHappened(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		at := time.Now()
		event := func() string { return fmt.Sprintf(`{"occurrence":%q}`, at.Format(time.RFC3339)) }
		with := func(name string, o singleton.Options, fault func(op string, do func() error) error) *lambdalease.Handler {
			h, err := lambdalease.New(c.client(t, 6*time.Second, fault), name, func() {}, &lambdalease.Options{
				Singleton: o, Metrics: &c.metrics, Logger: slog.New(slog.NewJSONHandler(&c.logs, nil)),
			})
			require.NoError(t, err)
			return h
		}
		last := func() (log, metrics map[string]any) {
			l, m := lines(t, &c.logs), lines(t, &c.metrics)
			require.Len(t, l, 1)
			require.Len(t, m, 1)
			return l[0], m[0]
		}
		except := func(ok string) func(string, func() error) error {
			return func(op string, do func() error) error {
				if op == ok {
					return do()
				}
				return errors.New("no route")
			}
		}

		_, err := invoke(t, with(job, singleton.Options{OnUnavailable: singleton.RunUnguarded}, except("")), time.Minute, event())
		require.NoError(t, err)
		log, metrics := last()
		require.Equal(t, "WARN", log["level"])
		require.Equal(t, true, log["unguarded"])
		require.EqualValues(t, 1, metrics["ran"])
		require.NotContains(t, metrics, "token")

		_, err = invoke(t, with("Zürich, \"Süd\"", singleton.Options{}, except("acquire")), time.Minute, event())
		require.NoError(t, err)
		log, metrics = last()
		require.Equal(t, "WARN", log["level"])
		require.Contains(t, log["not recorded"], "no route")
		require.Equal(t, "Zürich, \"Süd\"", log["job"])
		require.Equal(t, `Z\u00fcrich, "S\u00fcd"`, metrics["Job"], "CloudWatch takes ASCII")

		holder := c.client(t, 6*time.Second, nil)
		l, err := holder.TryAcquire(t.Context(), job)
		require.NoError(t, err)
		_, err = invoke(t, with(job, singleton.Options{EveryOccurrence: true}, nil), 3*time.Second, event())
		require.ErrorIs(t, err, singleton.ErrBusy)
		log, metrics = last()
		require.Equal(t, "WARN", log["level"])
		require.EqualValues(t, 1, metrics["running"])
		require.NotZero(t, log["waited"])
		require.NoError(t, l.Release(t.Context()))
	})
}
