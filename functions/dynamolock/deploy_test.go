package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/functions/internal/functiontest"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/functions/internal/start"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/internal/template"
	"github.com/cloudlease/cloudlease/lambdalease"
	"github.com/cloudlease/cloudlease/lease"
)

const function = "DynamoFunction"

func TestMain(m *testing.M) {
	// The runtime's signal goroutine starts with the first use and stays. It must not start inside a bubble.
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	signal.Stop(c)
	os.Exit(m.Run())
}

func TestTemplate(t *testing.T) {
	s := functiontest.Deployed(t, nil)
	functiontest.Template(t, s, function, functiontest.Variables{
		Left: []string{"SETTLEMENT_PACE", "SETTLEMENT_FENCE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"},
	}, func(getenv func(string) string) error {
		_, err := newHandler(getenv)
		return err
	})
}

// cloud is a DynamoDB with a function on it, in virtual time: five past midnight on 2 March 2026.
type cloud struct {
	gate  *functiontest.Gate
	wire  http.RoundTripper
	log   *functiontest.Log
	stack *template.Stack
	api   *dynamodb.Client // of a bystander
}

func inBubble(t *testing.T, test func(t *testing.T, c *cloud)) {
	t.Helper()
	stack, log := functiontest.Deployed(t, nil), functiontest.NewLog(t)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 3, 2, 0, 5, 0, 0, time.UTC)))
		engine := emulator.NewEmbedded()
		c := &cloud{gate: functiontest.NewGate(engine), log: log, stack: stack, api: emulator.Client("", emulator.Transport(engine, nil))}
		c.wire = emulator.Transport(c.gate, nil)
		seed(t, c.api)
		test(t, c)
	})
}

// function is one execution environment.
func (c *cloud) function(t *testing.T, changes map[string]string) *lambdalease.Handler {
	t.Helper()
	cfg, err := configure(complete.With(changes))
	require.NoError(t, err)
	h, err := open(cfg, cfg.DynamoDB(func(o *dynamodb.Options) {
		o.BaseEndpoint, o.HTTPClient = aws.String("http://dynamodb.invalid"), &http.Client{Transport: c.wire}
	}))
	require.NoError(t, err)
	return h
}

// invoke delivers the event of the schedule, with the template's time-out.
func invoke(t *testing.T, h *lambdalease.Handler) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	out, err := h.Invoke(ctx, []byte(`{"scheduled-time":"2026-03-02T00:05:00Z"}`))
	return string(out), err
}

// require wants what was logged to count as want says.
func (c *cloud) require(t *testing.T, want map[string]int) {
	t.Helper()
	functiontest.RequireMetrics(t, c.stack, function, c.log.Lines(t), want)
}

// settled wants the occurrence to run from a clean slate: nothing of what failed before is left.
func (c *cloud) settled(t *testing.T) {
	t.Helper()
	out, err := invoke(t, c.function(t, nil))
	require.NoError(t, err)
	require.Contains(t, out, `"count":30,"total_cents":46500,`)
	results, err := dynamolock.NewGuard(c.api, "results", nil)
	require.NoError(t, err)
	have, err := results.Get(t.Context(), settlement.Key("2026-03-01"))
	require.NoError(t, err)
	require.JSONEq(t, out, string(have.Value))
	c.require(t, map[string]int{"Runs": 1})
}

// unwritten wants no result.
func (c *cloud) unwritten(t *testing.T) {
	t.Helper()
	all, err := c.api.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("results")})
	require.NoError(t, err)
	require.Empty(t, all.Items)
}

// TestPermissions: the role's policy in the template is what the function was seen to need, no more and no less, over a take-over of
// a dead run, a long run and a skipped delivery.
func TestPermissions(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		dead := must(lease.New(must(dynamolock.New(c.api, "locks", nil)), nil))
		l, err := dead.TryAcquireMark(t.Context(), "settlement", lease.Mark{Occurrence: time.Now().Unix()})
		require.NoError(t, err)
		l.Lapse() // as good as dead
		h := c.function(t, map[string]string{"SETTLEMENT_PACE": "2s"})
		_, err = invoke(t, h)
		require.NoError(t, err)
		_, err = invoke(t, h)
		require.NoError(t, err)
		tables := map[string]string{"LockTable.Arn": "locks", "PaymentsTable.Arn": "payments", "ResultsTable.Arn": "results"}
		require.Equal(t, functiontest.OnTables(c.stack, "DynamoRole", tables), c.gate.Asked())
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestHealthy: no line of a run, of its copy and of one that waits matches the filter of an alarm.
func TestHealthy(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		c.settled(t)
		_, err := invoke(t, c.function(t, nil))
		require.NoError(t, err)
		c.require(t, nil)
	})
}

// TestFailures: what is deployed wrong, or cannot be reached, fails the invocation with its class in the log, counts in the
// metrics, and leaves nothing behind: with the fault mended the same occurrence runs.
func TestFailures(t *testing.T) {
	misconfigured := map[string]int{"Failures": 1, "Misconfigured": 1}
	for name, f := range map[string]struct {
		denied  string
		changes map[string]string
		class   error
		want    map[string]int
	}{
		"reading the lock is denied":    {denied: "dynamodb:GetItem locks", class: lease.ErrDenied, want: misconfigured},
		"taking the lock is denied":     {denied: "dynamodb:UpdateItem locks", class: lease.ErrDenied, want: misconfigured},
		"reading payments is denied":    {denied: "dynamodb:Query payments", class: lease.ErrDenied, want: misconfigured},
		"writing the result is denied":  {denied: "dynamodb:UpdateItem results", class: lease.ErrDenied, want: misconfigured},
		"there is no lock table":        {changes: map[string]string{"LEASE_TABLE": "lokcs"}, class: lease.ErrMisconfigured, want: misconfigured},
		"there is no payments table":    {changes: map[string]string{"PAYMENTS_TABLE": "paymnets"}, class: lease.ErrMisconfigured, want: misconfigured},
		"there is no results table":     {changes: map[string]string{"RESULTS_TABLE": "resluts"}, class: lease.ErrMisconfigured, want: misconfigured},
		"the lock table is another one": {changes: map[string]string{"LEASE_TABLE": "payments"}, class: lease.ErrMisconfigured, want: misconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cloud) {
				c.gate.Deny(f.denied)
				_, err := invoke(t, c.function(t, f.changes))
				require.ErrorIs(t, err, f.class)
				c.require(t, f.want)
				c.unwritten(t)
				c.gate.Deny()
				c.settled(t)
			})
		})
	}
}

func TestUnreachable(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		wire := c.wire
		c.wire = functiontest.Refused{}
		_, err := invoke(t, c.function(t, nil))
		require.ErrorIs(t, err, lease.ErrUnavailable)
		c.require(t, map[string]int{"Failures": 1})
		c.unwritten(t)
		c.wire = wire
		c.settled(t)
	})
}

func TestWrongSetting(t *testing.T) {
	log := functiontest.NewLog(t)
	_, err := start.Open(newHandler, complete.With(map[string]string{"LEASE_TTL": "soon"}))
	require.ErrorContains(t, err, "LEASE_TTL")
	functiontest.RequireMetrics(t, functiontest.Deployed(t, nil), function, log.Lines(t), map[string]int{"Failures": 1, "Misconfigured": 1})
}

// TestLostLease: an operator breaks the lock in mid-run. The run notices, its write is nobody's loss, and the alarm goes off.
func TestLostLease(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		done := make(chan error, 1)
		h := c.function(t, map[string]string{"SETTLEMENT_PACE": "2s"})
		go func() {
			_, err := invoke(t, h)
			done <- err
		}()
		time.Sleep(5 * time.Second)
		store := must(dynamolock.New(c.api, "locks", nil))
		client := must(lease.New(store, nil))
		info, err := client.Inspect(t.Context(), "settlement")
		require.NoError(t, err)
		require.NoError(t, store.Break(t.Context(), "settlement", info.Token, lease.Reason{By: "test", Why: "test"}))
		require.ErrorIs(t, <-done, lease.ErrLost)
		c.require(t, map[string]int{"LostLeases": 1, "Failures": 1})
		c.unwritten(t)
		c.settled(t)
	})
}

// TestDeniedInMidRun: a policy changes while a run holds the lock. It ends with its lease, and says why.
func TestDeniedInMidRun(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		h := c.function(t, map[string]string{"SETTLEMENT_PACE": "2s"})
		go func() {
			time.Sleep(5 * time.Second)
			c.gate.Deny("dynamodb:UpdateItem locks")
		}()
		_, err := invoke(t, h)
		require.ErrorIs(t, err, lease.ErrLost)
		c.require(t, map[string]int{"LostLeases": 1, "Failures": 1, "Misconfigured": 1})
		c.unwritten(t)
		c.gate.Deny()
		c.settled(t)
	})
}

// TestOutOfTime: the run ends before the platform would end it, and the retry begins anew.
func TestOutOfTime(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		_, err := invoke(t, c.function(t, map[string]string{"SETTLEMENT_PACE": "1m"}))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		c.require(t, map[string]int{"Failures": 1})
		c.unwritten(t)
		c.settled(t)
	})
}

// TestStaleWrite: a newer run has written the day.
func TestStaleWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		results := must(dynamolock.NewGuard(c.api, "results", nil))
		require.NoError(t, results.Put(t.Context(), settlement.Key("2026-03-01"), []byte("newer"), 1<<52, "newer"))
		_, err := invoke(t, c.function(t, nil))
		require.ErrorIs(t, err, lease.ErrStale)
		c.require(t, map[string]int{"StaleWrites": 1, "Failures": 1})
		have, err := results.Get(t.Context(), settlement.Key("2026-03-01"))
		require.NoError(t, err)
		require.Equal(t, "newer", string(have.Value))
	})
}

// A delivery that meets a run of its own occurrence fails so that it comes again; that is no alarm.
func TestRunningElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		client := must(lease.New(must(dynamolock.New(c.api, "locks", nil)), nil))
		l, err := client.TryAcquireMark(t.Context(), "settlement", lease.Mark{Occurrence: time.Now().Unix()})
		require.NoError(t, err)
		c.log.Lines(t)
		_, err = invoke(t, c.function(t, nil))
		require.True(t, errors.Is(err, lease.ErrHeld), err)
		c.require(t, nil)
		require.NoError(t, l.Release(t.Context()))
	})
}
