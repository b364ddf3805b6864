package lambdalease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lambdalease"
)

func TestOncePerOccurrence(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		h := c.function(t, settle, nil)
		out, err := invoke(t, h, 10*time.Second, rule)
		require.NoError(t, err)
		require.JSONEq(t, `{"total":42,"at":"2026-03-02T06:00:00Z"}`, out)
		require.Equal(t, []string{"acquire", "release"}, c.sent())
		m := lines(t, &c.metrics)
		require.Len(t, m, 1)
		require.InDelta(t, 1000, m[0]["HoldTime"], 1)

		for range 2 {
			out, err = invoke(t, c.function(t, settle, nil), 10*time.Second, rule)
			require.NoError(t, err, "or the platform would retry")
			require.JSONEq(t, `{"total":0,"at":""}`, out, "the zero value of the result")
			require.Equal(t, []string{"acquire"}, c.sent(), "a skip costs one request")
		}
		for _, m := range lines(t, &c.metrics) {
			require.EqualValues(t, 1, m["skipped"])
			require.EqualValues(t, 0, m["ran"])
			require.Equal(t, "already-done", m["outcome"])
			require.NotContains(t, m, "HoldTime")
		}
		logs := lines(t, &c.logs)
		require.Len(t, logs, 3)
		require.Equal(t, "singleton delivery", logs[0]["msg"])
		require.Equal(t, "ran", logs[0]["outcome"])
		require.Equal(t, "request-1", logs[0]["request_id"])
		require.Equal(t, "2026-03-02T06:00:00Z", logs[0]["occurrence"])
		require.EqualValues(t, 1, logs[0]["token"])
	})
}

func TestOverriddenOccurrence(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		at := time.Now()
		h := c.function(t, func() error { return nil }, &lambdalease.Options{Occurrence: func(event []byte) (time.Time, error) {
			if string(event) != "raw" {
				return time.Time{}, errors.New("not mine")
			}
			return at, nil
		}})
		_, err := invoke(t, h, time.Minute, "raw")
		require.NoError(t, err)
		_, err = invoke(t, h, time.Minute, rule)
		require.ErrorContains(t, err, "not mine")
	})
}
