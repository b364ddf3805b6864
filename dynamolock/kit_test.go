package dynamolock_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const table = "locks"

// service is a DynamoDB in this process, in virtual time inside a bubble.
type service struct {
	handler http.Handler
	offset  time.Duration // of the service's clock
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{handler: emulator.NewEmbedded()}
	_, err := s.sdk(nil).CreateTable(t.Context(), dynamolock.CreateTableInput(table))
	require.NoError(t, err)
	_, err = s.sdk(nil).CreateTable(t.Context(), guardTable())
	require.NoError(t, err)
	return s
}

func (s *service) now() time.Time { return time.Now().Add(s.offset) }

// sdk is a client of s; wrap, if not nil, stands between.
func (s *service) sdk(wrap func(http.RoundTripper) http.RoundTripper) *dynamodb.Client {
	wire := emulator.Transport(s.handler, s.now)
	if wrap != nil {
		wire = wrap(wire)
	}
	return emulator.Client("http://dynamodb.invalid", wire)
}

// host is one host's store and what it sent.
type host struct {
	*dynamolock.Store
	sent *counter
}

func (s *service) host(t *testing.T, o *dynamolock.Options) host {
	t.Helper()
	c := &counter{}
	st, err := dynamolock.New(s.sdk(c.wrap), table, o)
	require.NoError(t, err)
	return host{st, c}
}

func (h host) client(t *testing.T, o *lease.Options) *lease.Client {
	t.Helper()
	if o == nil {
		o = &lease.Options{}
	}
	if o.Observer == nil {
		o.Observer = lease.ObserverFunc(func(lease.Event) {})
	}
	c, err := lease.New(h.Store, o)
	require.NoError(t, err)
	return c
}

// counter counts requests: R for reads, W for writes.
type counter struct {
	mu     sync.Mutex
	ops    []string
	bodies []string
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		c.mu.Lock()
		c.ops = append(c.ops, op)
		c.bodies = append(c.bodies, string(body))
		c.mu.Unlock()
		return next.RoundTrip(r)
	})
}

// take returns the requests since the last take, such as "RW", and forgets them.
func (c *counter) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, op := range c.ops {
		switch op {
		case "GetItem", "Scan", "Query":
			b.WriteByte('R')
		default:
			b.WriteByte('W')
		}
	}
	c.ops, c.bodies = nil, nil
	return b.String()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// raw reads an item as the service has it.
func (s *service) raw(t *testing.T, tab string, key map[string]string) map[string]map[string]any {
	t.Helper()
	k := map[string]map[string]string{}
	for attr, v := range key {
		k[attr] = map[string]string{"S": v}
	}
	var out struct{ Item map[string]map[string]any }
	s.call(t, "GetItem", map[string]any{"TableName": tab, "Key": k, "ConsistentRead": true}, &out)
	return out.Item
}

// call sends a raw request.
func (s *service) call(t *testing.T, op string, in, out any) {
	t.Helper()
	body, err := json.Marshal(in)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://dynamodb.invalid/", bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	resp, err := emulator.Transport(s.handler, s.now).RoundTrip(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(text))
	if out != nil {
		require.NoError(t, json.Unmarshal(text, out))
	}
}

func guardTable() *dynamodb.CreateTableInput {
	in := dynamolock.CreateTableInput("guarded")
	key := "key"
	in.AttributeDefinitions[0].AttributeName, in.KeySchema[0].AttributeName = &key, &key
	return in
}
