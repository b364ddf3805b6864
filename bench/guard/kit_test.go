package guard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bench/meter"
	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

type service = http.Handler

// engine is a store on a fake of its service in this process.
type engine struct {
	name    string
	ttl     time.Duration
	service func() service
	open    func(t *testing.T, rt http.RoundTripper) (lease.Store, error)
	rule    func() meter.Rule
	canned  func(taken bool) service // for allocations, if the fake's own are so many that others hide among them; nil: the fake
}

var engines = []engine{
	{"dynamodb", 5 * time.Second, dynamoDB, func(_ *testing.T, rt http.RoundTripper) (lease.Store, error) {
		return dynamolock.New(emulator.Client("", rt), "locks", nil)
	}, meter.DynamoDB, newCanned},
	{"azure", bloblease.MinTTL, func() service { return blobfake.New("locks") }, azure, meter.Azure, nil},
	{"consul", 10 * time.Second, func() service { return consulfake.New(&consulfake.Options{MinTTL: 10 * time.Second}) }, consul, meter.Consul, nil},
}

func dynamoDB() service {
	e := emulator.NewEmbedded()
	db := emulator.Client("", emulator.Transport(e, nil))
	if err := emulator.CreateTables(context.Background(), db, dynamolock.CreateTableInput("locks")); err != nil {
		panic(err)
	}
	return e
}

func azure(_ *testing.T, rt http.RoundTripper) (lease.Store, error) {
	c, err := container.NewClientWithNoCredential("http://blob.invalid/account/locks", &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: rt}, Retry: policy.RetryOptions{MaxRetries: -1},
	}})
	if err != nil {
		return nil, err
	}
	return bloblease.New(c, nil)
}

func consul(_ *testing.T, rt http.RoundTripper) (lease.Store, error) {
	return consullock.New(&api.Config{Address: "consul.invalid:8500", Scheme: "http", HttpClient: &http.Client{Transport: rt}}, nil)
}

// wire notes what passes.
type wire struct {
	next http.RoundTripper
	rule meter.Rule
	mu   sync.Mutex
	sent []string
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	named := r.Clone(r.Context())
	for name, values := range r.Header { // Azure's SDK does not spell them as the wire does
		named.Header[http.CanonicalHeaderKey(name)] = values
	}
	call := meter.Call{Request: named, Status: http.StatusOK}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
		call.Body, r.Body = body, io.NopCloser(bytes.NewReader(body))
	}
	w.mu.Lock()
	w.sent = append(w.sent, w.rule.Cost(call).Op)
	w.mu.Unlock()
	return w.next.RoundTrip(r)
}

// take tells what was sent since the last time.
func (w *wire) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.sent = nil }()
	return strings.Join(w.sent, ", ")
}

func (e engine) store(t *testing.T, s service) (lease.Store, *wire) {
	t.Helper()
	w := &wire{next: emulator.Transport(s, nil), rule: e.rule()}
	st, err := e.open(t, w)
	require.NoError(t, err)
	return st, w
}

func (e engine) client(t *testing.T, s service) (*lease.Client, *wire) {
	t.Helper()
	st, w := e.store(t, s)
	c, err := lease.New(st, &lease.Options{Holder: "me", TTL: max(e.ttl, 30*time.Second), Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(t, err)
	return c, w
}

// canned is a DynamoDB that grants every lock to whoever asks, or, taken, none to anybody, without looking anything up.
type canned struct{ taken bool }

func newCanned(taken bool) service { return canned{taken} }

func (c canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	holder := "other#1"
	if _, rest, ok := strings.Cut(string(body), `":h":{"S":"`); ok && !c.taken {
		holder, _, _ = strings.Cut(rest, `"`)
	}
	item := fmt.Sprintf(`{"name":{"S":"x"},"version":{"N":"7"},"holder":{"S":%q},"nonce":{"S":"n"},"expires":{"N":"%d"},"ttl":{"N":"30000"}}`,
		holder, time.Now().Add(30*time.Second).UnixMilli())
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	switch {
	case c.taken && strings.HasSuffix(r.Header.Get("X-Amz-Target"), "GetItem"):
		_, _ = io.WriteString(w, `{"Item":`+item+"}")
	case c.taken:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"no","Item":`+item+"}")
	case strings.Contains(string(body), "ALL_NEW"):
		_, _ = io.WriteString(w, `{"Attributes":`+item+"}")
	default:
		_, _ = io.WriteString(w, "{}")
	}
}
