package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

func TestMain(m *testing.M) {
	// The runtime's signal goroutine starts with the first use and stays. It must not start inside a bubble.
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	signal.Stop(c)
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("os/signal.loop"))
}

func environment(endpoint string, changes map[string]string) func(string) string {
	env := map[string]string{
		"LEASE_TABLE": "locks", "RESULTS_TABLE": "results", "LEASE_TTL": "3s", "LEASE_HOLDER": "test", "SHARD_GROUP": "stream", "SHARD_MAX": "2",
		"SHARD_RESERVE": "900ms", "STREAM_SHARDS": "4", "STREAM_RECORDS": "83", "STREAM_PACE": "20ms", "AWS_REGION": "eu-west-1",
		"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key",
	}
	maps.Copy(env, changes)
	return func(name string) string { return env[name] }
}

// Two copies at a time, invocation after invocation, until every shard has ended.
func TestInvocations(t *testing.T) {
	engine, err := emulator.Serve(emulator.NewEmbedded())
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	sdk := emulator.Client(engine.URL, nil)
	for name, key := range map[string]string{"locks": "name", "results": "key"} {
		_, err := sdk.CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName: &name, BillingMode: types.BillingModePayPerRequest,
			KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS}},
		})
		require.NoError(t, err)
	}
	var sum report
	var mu sync.Mutex
	for range 20 {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				h, err := newHandler(environment(engine.URL, nil))
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
				defer cancel()
				out, err := h.Invoke(ctx, []byte(`{}`))
				if err != nil {
					t.Error(err)
					return
				}
				var r report
				if err := json.Unmarshal(out, &r); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				sum.Records, sum.Ended = sum.Records+r.Records, sum.Ended+r.Ended
			})
		}
		wg.Wait()
		if sum.Ended == 4 || t.Failed() {
			break
		}
	}
	require.EqualValues(t, 4, sum.Ended)
	require.EqualValues(t, 4*83, sum.Records, "every record once: all invocations handed back in order")
	guard, err := dynamolock.NewGuard(sdk, "results", nil)
	require.NoError(t, err)
	for _, id := range []string{"shard-001", "shard-002", "shard-003", "shard-004"} {
		have, err := guard.Get(t.Context(), id)
		require.NoError(t, err)
		require.JSONEq(t, `{"shard":"`+id+`","number":83}`, string(have.Value))
		require.NotZero(t, have.Token)
	}
}

func TestBadEnvironment(t *testing.T) {
	_, err := newHandler(environment("", nil))
	require.NoError(t, err)
	for name, value := range map[string]string{
		"LEASE_TABLE": "", "RESULTS_TABLE": "", "SHARD_GROUP": "", "AWS_REGION": "", "LEASE_TTL": "soon", "SHARD_MAX": "0", "SHARD_RESERVE": "-1s",
		"STREAM_SHARDS": "x", "STREAM_RECORDS": "-3", "STREAM_PACE": "fast", "AWS_ENDPOINT_URL": "localhost",
	} {
		_, err := newHandler(environment("", map[string]string{name: value}))
		require.ErrorContains(t, err, name)
	}
	_, err = newHandler(environment("", map[string]string{"SHARD_GROUP": "a/b"}))
	require.ErrorContains(t, err, "slash")
	_, err = newHandler(environment("", map[string]string{"LEASE_TTL": "1ms"}))
	require.ErrorContains(t, err, "TTL")
}

func TestTooLittleTime(t *testing.T) {
	h, err := newHandler(environment("http://127.0.0.1:1", nil))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = h.Invoke(ctx, nil)
	require.ErrorContains(t, err, "not longer than the reserve of 900ms")
}

func TestCredentials(t *testing.T) {
	c, err := configure(environment("", map[string]string{"AWS_SECRET_ACCESS_KEY": ""}))
	require.NoError(t, err)
	_, err = c.Credentials(t.Context())
	require.ErrorContains(t, err, "AWS_SECRET_ACCESS_KEY")
}
