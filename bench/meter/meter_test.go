package meter_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bench/meter"
)

// call is a call of DynamoDB.
func call(t *testing.T, op, body string, status int, answer string) meter.Call {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	return meter.Call{Request: r, Body: []byte(body), Status: status, Answer: []byte(answer)}
}

func TestUnitsOfDynamoDB(t *testing.T) {
	big := strings.Repeat("x", 5000)
	refused := `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}`
	for name, c := range map[string]struct {
		op, in        string
		status        int
		out           string
		reads, writes float64
	}{
		"consistent read":            {"GetItem", `{"Key":{"name":{"S":"a"}},"ConsistentRead":true}`, 200, `{"Item":{"name":{"S":"a"}}}`, 1, 0},
		"eventual read":              {"GetItem", `{"Key":{"name":{"S":"a"}}}`, 200, `{"Item":{"name":{"S":"a"}}}`, 0.5, 0},
		"read of nothing":            {"GetItem", `{"Key":{"name":{"S":"a"}},"ConsistentRead":true}`, 200, `{}`, 1, 0},
		"read of 5 KB":               {"GetItem", `{"Key":{"name":{"S":"a"}},"ConsistentRead":true}`, 200, `{"Item":{"name":{"S":"` + big + `"}}}`, 2, 0},
		"scan of 10 KB":              {"Scan", `{"ConsistentRead":true}`, 200, `{"Items":[{"a":{"S":"` + big + `"}},{"a":{"S":"` + big + `"}}]}`, 3, 0},
		"small write":                {"UpdateItem", `{"Key":{"name":{"S":"a"}}}`, 200, `{}`, 0, 1},
		"write of 5 KB":              {"PutItem", `{"Item":{"name":{"S":"` + big + `"}}}`, 200, `{}`, 0, 5},
		"write that returns 5 KB":    {"UpdateItem", `{"Key":{"name":{"S":"a"}}}`, 200, `{"Attributes":{"v":{"S":"` + big + `"}}}`, 0, 5},
		"condition failed":           {"UpdateItem", `{"Key":{"name":{"S":"a"}}}`, 400, refused, 0, 1},
		"throttled":                  {"UpdateItem", `{"Key":{"name":{"S":"a"}}}`, 400, `{"__type":"ThrottlingException"}`, 0, 0},
		"transaction of two":         {"TransactWriteItems", `{"TransactItems":[{"Put":{"Item":{"name":{"S":"a"}}}},{"ConditionCheck":{"Key":{"name":{"S":"b"}}}}]}`, 200, `{}`, 0, 4},
		"numbers are half as long":   {"PutItem", `{"Item":{"n":{"N":"` + strings.Repeat("1", 2000) + `"}}}`, 200, `{}`, 0, 1},
		"a list counts its elements": {"PutItem", `{"Item":{"l":{"L":[{"S":"` + strings.Repeat("1", 600) + `"},{"S":"` + strings.Repeat("1", 600) + `"}]}}}`, 200, `{}`, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got := meter.DynamoDB().Cost(call(t, c.op, c.in, c.status, c.out))
			require.Equal(t, c.op, got.Op)
			require.InDelta(t, c.reads, got.Reads, 0)
			require.InDelta(t, c.writes, got.Writes, 0)
		})
	}
}

// TestSizeIsRemembered: an update of an item that was seen large costs what the item has, though the update is small.
func TestSizeIsRemembered(t *testing.T) {
	rule := meter.DynamoDB()
	rule.Cost(call(t, "PutItem", `{"TableName":"t","Item":{"name":{"S":"a"},"v":{"S":"`+strings.Repeat("x", 3000)+`"}}}`, 200, `{}`))
	require.InDelta(t, 3, rule.Cost(call(t, "UpdateItem", `{"TableName":"t","Key":{"name":{"S":"a"}}}`, 200, `{}`)).Writes, 0)
	require.InDelta(t, 1, rule.Cost(call(t, "UpdateItem", `{"TableName":"t","Key":{"name":{"S":"b"}}}`, 200, `{}`)).Writes, 0)
}

func TestOperations(t *testing.T) {
	for _, c := range []struct {
		rule                  meter.Rule
		method, path, body    string
		header, op, key, kind string
	}{
		{meter.Azure(), "PUT", "/acc/locks/a%2Fb?comp=lease", "", "acquire", "lease acquire", "b", "other"},
		{meter.Azure(), "PUT", "/acc/locks/a?comp=metadata", "", "", "set blob metadata", "a", "other"},
		{meter.Azure(), "PUT", "/acc/locks/a", "", "", "put blob", "a", "write"},
		{meter.Azure(), "HEAD", "/acc/locks/a", "", "", "get blob properties", "a", "other"},
		{meter.Azure(), "GET", "/acc/locks?restype=container&comp=list", "", "", "list blobs", "", "list"},
		{meter.Consul(), "PUT", "/v1/session/renew/1-2", "", "", "session renew", "", ""},
		{meter.Consul(), "PUT", "/v1/txn", `[{"KV":{"Verb":"check-index","Key":"p/x"}},{"KV":{"Verb":"lock","Key":"p/x"}}]`, "", "txn check-index lock", "x", ""},
		{meter.Consul(), "PUT", "/v1/txn", `[{"KV":{"Verb":"get-tree","Key":"p/locks/x/"}}]`, "", "txn get-tree", "x", ""},
		{meter.Consul(), "GET", "/v1/kv/p/x?index=7&wait=10s", "", "", "kv blocking query", "x", ""},
		{meter.Consul(), "PUT", "/v1/kv/p/x?acquire=1-2", "", "", "kv acquire", "x", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, http.NoBody)
		r.Header.Set("X-Ms-Lease-Action", c.header)
		got := c.rule.Cost(meter.Call{Request: r, Body: []byte(c.body), Status: 200})
		require.Equal(t, meter.Cost{Op: c.op, Key: c.key, Class: meter.Class(c.kind)}, got, "%s %s", c.method, c.path)
	}
}

// TestMeter: the proxy changes nothing and counts everything.
func TestMeter(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Seen", r.Host+" "+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write(append([]byte("got "), body...))
	}))
	defer service.Close()
	m, err := meter.New(t.Context(), service.URL, meter.DynamoDB())
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.URL(), strings.NewReader(`{"Key":{"name":{"S":"x"}}}`))
		require.NoError(t, err)
		r.Header.Set("Authorization", "signature")
		r.Header.Set("X-Amz-Target", "DynamoDB_20120810.GetItem")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusConflict, resp.StatusCode)
		require.Equal(t, `got {"Key":{"name":{"S":"x"}}}`, string(body))
		require.Equal(t, r.URL.Host+" signature", resp.Header.Get("Seen"))
	}
	require.Equal(t, 2, m.Of("x").Requests)
	c := m.Take()
	require.Equal(t, 2, c.Requests)
	require.Equal(t, 2, c.Refused)
	require.Equal(t, map[string]int{"GetItem": 2}, c.Ops)
	require.Equal(t, 2*(len(`{"Key":{"name":{"S":"x"}}}`)*2+len("got ")), c.Bytes)
	require.Equal(t, 1, c.Peak)
	require.Zero(t, m.Take().Requests)
}
