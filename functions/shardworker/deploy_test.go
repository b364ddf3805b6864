package main

import (
	"context"
	"maps"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/functions/internal/functiontest"
	"github.com/cloudlease/cloudlease/functions/internal/start"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/internal/template"
	"github.com/cloudlease/cloudlease/lease"
)

const function = "ShardFunction"

func deployed(t *testing.T) *template.Stack {
	t.Helper()
	return functiontest.Deployed(t, map[string]string{"ShardWorker": "on"})
}

func TestTemplate(t *testing.T) {
	functiontest.Template(t, deployed(t), function, functiontest.Variables{
		Left: []string{"LEASE_HOLDER", "STREAM_SHARDS", "STREAM_RECORDS", "STREAM_PACE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"},
	}, func(getenv func(string) string) error {
		_, err := newHandler(getenv)
		return err
	})
}

// cloud is a DynamoDB with functions on it, in virtual time.
type cloud struct {
	gate  *functiontest.Gate
	wire  http.RoundTripper
	log   *functiontest.Log
	stack *template.Stack
	api   *dynamodb.Client // of a bystander
}

func inBubble(t *testing.T, test func(t *testing.T, c *cloud)) {
	t.Helper()
	stack, log := deployed(t), functiontest.NewLog(t)
	synctest.Test(t, func(t *testing.T) {
		engine := emulator.NewEmbedded()
		c := &cloud{gate: functiontest.NewGate(engine), log: log, stack: stack, api: emulator.Client("", emulator.Transport(engine, nil))}
		c.wire = emulator.Transport(c.gate, nil)
		for name, key := range map[string]string{"locks": "name", "results": "key"} {
			_, err := c.api.CreateTable(t.Context(), &dynamodb.CreateTableInput{
				TableName: &name, BillingMode: types.BillingModePayPerRequest,
				KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
				AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS}},
			})
			require.NoError(t, err)
		}
		test(t, c)
	})
}

// invoke is an invocation in an environment of its own, set as the template says, of a stream that takes minutes.
func (c *cloud) invoke(t *testing.T, changes map[string]string) error {
	t.Helper()
	env := functiontest.Environment(c.stack.Environment(function))
	with := map[string]string{
		"LEASE_TABLE": "locks", "RESULTS_TABLE": "results", "STREAM_PACE": "3s", "STREAM_RECORDS": "150", "AWS_REGION": "eu-west-1",
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key",
	}
	maps.Copy(with, changes)
	cfg, err := configure(env.With(with))
	require.NoError(t, err)
	h, err := open(cfg, cfg.DynamoDB(func(o *dynamodb.Options) {
		o.BaseEndpoint, o.HTTPClient = aws.String("http://dynamodb.invalid"), &http.Client{Transport: c.wire}
	}))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_, err = h.Invoke(ctx, []byte(`{"scheduled-time":"2026-03-02T00:05:00Z"}`))
	return err
}

// metrics are what was counted since the last look.
func (c *cloud) metrics(t *testing.T) map[string]int {
	t.Helper()
	return functiontest.Metrics(t, c.stack, function, c.log.Lines(t))
}

// TestHealthy: workers that come every minute, share, work and go, and the role's policy in the template is what they needed.
func TestHealthy(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		const copies = 12
		done := make(chan error, copies)
		for range copies {
			go func() { done <- c.invoke(t, nil) }()
			time.Sleep(time.Minute)
		}
		for range copies {
			require.NoError(t, <-done)
		}
		functiontest.RequireMetrics(t, c.stack, function, c.log.Lines(t), map[string]int{"ShardRuns": copies})
		guard, err := dynamolock.NewGuard(c.api, "results", nil)
		require.NoError(t, err)
		have, err := guard.Get(t.Context(), "shard-008")
		require.NoError(t, err)
		require.JSONEq(t, `{"shard":"shard-008","number":150}`, string(have.Value))
		tables := map[string]string{"LockTable.Arn": "locks", "ResultsTable.Arn": "results"}
		require.Equal(t, functiontest.OnTables(c.stack, "ShardRole", tables), c.gate.Asked())
	})
}

// TestFailures: what is deployed wrong counts in the metrics, and nothing is processed.
func TestFailures(t *testing.T) {
	for name, f := range map[string]struct {
		denied  string
		changes map[string]string
		class   error // of the invocation's error; nil where the worker goes on trying
	}{
		"reading locks is denied":       {denied: "dynamodb:GetItem locks", class: lease.ErrDenied},
		"scanning locks is denied":      {denied: "dynamodb:Scan locks"},
		"taking locks is denied":        {denied: "dynamodb:UpdateItem locks", class: lease.ErrDenied},
		"writing results is denied":     {denied: "dynamodb:UpdateItem results"},
		"there is no lock table":        {changes: map[string]string{"LEASE_TABLE": "lokcs"}, class: lease.ErrMisconfigured},
		"there is no results table":     {changes: map[string]string{"RESULTS_TABLE": "resluts"}},
		"the lock table is another one": {changes: map[string]string{"LEASE_TABLE": "results"}, class: lease.ErrMisconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cloud) {
				c.gate.Deny(f.denied)
				err := c.invoke(t, f.changes)
				m := c.metrics(t)
				require.NotZero(t, m["ShardFailures"])
				require.NotZero(t, m["ShardMisconfigured"])
				require.Equal(t, f.class == nil, m["ShardRuns"] == 1, "it has worked, as far as it could")
				if f.class != nil {
					require.ErrorIs(t, err, f.class)
				} else {
					require.NoError(t, err)
				}
				all, err := c.api.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("results")})
				require.NoError(t, err)
				require.Empty(t, all.Items)
			})
		})
	}
}

// TestUnreachable: the worker tries until its time is over, and does not count as one that has worked.
func TestUnreachable(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		c.wire = functiontest.Refused{}
		require.NoError(t, c.invoke(t, nil))
		m := c.metrics(t)
		require.NotZero(t, m["ShardFailures"])
		require.Len(t, m, 1, m)
	})
}

func TestWrongSetting(t *testing.T) {
	log := functiontest.NewLog(t)
	_, err := start.Open(newHandler, environment("", map[string]string{"SHARD_MAX": "many"}))
	require.ErrorContains(t, err, "SHARD_MAX")
	functiontest.RequireMetrics(t, deployed(t), function, log.Lines(t), map[string]int{"ShardFailures": 1, "ShardMisconfigured": 1})
}

// TestLostLease: an operator breaks the worker's lease in mid-run.
func TestLostLease(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		done := make(chan error, 1)
		go func() { done <- c.invoke(t, nil) }()
		time.Sleep(time.Minute)
		store, err := dynamolock.New(c.api, "locks", nil)
		require.NoError(t, err)
		for l, err := range store.List(t.Context(), "") {
			require.NoError(t, err)
			if l.State == lease.Held {
				require.NoError(t, store.Break(t.Context(), l.Name, l.Token, lease.Reason{By: "test", Why: "test"}))
			}
		}
		require.NoError(t, <-done)
		m := c.metrics(t)
		require.Equal(t, map[string]int{"ShardRuns": 2, "ShardLostLeases": 1 + 8}, m, "the worker's and its shards'; then it joins anew, and leaves again")
	})
}

// TestStaleWrite: a newer owner has written a shard's result.
func TestStaleWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud) {
		results, err := dynamolock.NewGuard(c.api, "results", nil)
		require.NoError(t, err)
		require.NoError(t, results.Put(t.Context(), "shard-003", []byte("newer"), 1<<52, "newer"))
		require.NoError(t, c.invoke(t, nil))
		require.Equal(t, map[string]int{"ShardRuns": 1, "ShardStaleWrites": 5, "ShardFailures": 5, "ShardsParked": 1}, c.metrics(t),
			"five tries, and the shard is parked")
	})
}
