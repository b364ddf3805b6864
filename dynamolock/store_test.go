package dynamolock_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/internal/live"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// TestStore runs the specification in virtual time, against the wire.
func TestStore(t *testing.T) {
	leasetest.TestStore(t, leasetest.Harness{New: newVirtual, Virtual: true})
}

// TestStoreOfMuteEngine is TestStore on an engine that does not return the item that made a condition fail.
func TestStoreOfMuteEngine(t *testing.T) {
	leasetest.TestStore(t, leasetest.Harness{Virtual: true, Rounds: 10, PerSecond: 10, New: func(t *testing.T) leasetest.Backend {
		t.Helper()
		b := newVirtual(t).(*backend)
		wire := b.wire
		b.wire = func() http.RoundTripper { return mute(wire()) }
		return b
	}})
}

// TestGuard runs the guard's specification in virtual time.
func TestGuard(t *testing.T) {
	leasetest.TestGuard(t, leasetest.GuardHarness{Virtual: true, New: func(t *testing.T) leasetest.Guarded {
		t.Helper()
		return newVirtual(t).(*backend)
	}})
}

// TestInRealTime runs both specifications in real time on every engine.
func TestInRealTime(t *testing.T) {
	for _, engine := range emulator.Engines() {
		t.Run(engine.Name, func(t *testing.T) {
			t.Parallel()
			url := engine.For(t).URL
			inRealTime(t, func(t *testing.T) *backend {
				t.Helper()
				return newReal(t, url)
			})
		})
	}
}

// TestLive runs both specifications on DynamoDB itself, if it is asked for: see internal/live.
func TestLive(t *testing.T) {
	if !live.Wanted(live.DynamoDB) {
		return
	}
	tables, err := live.OpenTables(t.Context())
	require.NoError(t, err)
	inRealTime(t, func(t *testing.T) *backend {
		t.Helper()
		return newLive(t, tables)
	})
}

func inRealTime(t *testing.T, service func(t *testing.T) *backend) {
	t.Helper()
	leasetest.TestStore(t, leasetest.Harness{New: func(t *testing.T) leasetest.Backend { t.Helper(); return service(t) }})
	leasetest.TestGuard(t, leasetest.GuardHarness{New: func(t *testing.T) leasetest.Guarded { t.Helper(); return service(t) }})
}

// backend is a pair of tables on some engine.
type backend struct {
	client          func(wire http.RoundTripper) *dynamodb.Client
	wire            func() http.RoundTripper
	locks, guarding string
}

func newVirtual(t *testing.T) leasetest.Backend {
	t.Helper()
	s := newService(t)
	return &backend{
		client: clientOf(""), locks: table, guarding: "guarded",
		wire: func() http.RoundTripper { return emulator.Transport(s.handler, s.now) },
	}
}

// newReal makes tables of its own for one subtest.
func newReal(t *testing.T, url string) *backend {
	t.Helper()
	id := strings.NewReplacer("/", "_", "#", "_").Replace(t.Name())
	id = fmt.Sprintf("%.100s-%d", id, time.Now().UnixNano()%1e9)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	b := &backend{
		client: clientOf(url), locks: "locks-" + id, guarding: "guarded-" + id,
		wire: func() http.RoundTripper { return transport },
	}
	for name, in := range map[string]*dynamodb.CreateTableInput{b.locks: dynamolock.CreateTableInput(""), b.guarding: guardTable()} {
		in.TableName = &name
		_, err := b.sdk(nil).CreateTable(t.Context(), in)
		require.NoError(t, err)
		exists := dynamodb.NewTableExistsWaiter(b.sdk(nil), func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay = 20 * time.Millisecond })
		require.NoError(t, exists.Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: &name}, 30*time.Second))
	}
	return b
}

func clientOf(url string) func(http.RoundTripper) *dynamodb.Client {
	return func(wire http.RoundTripper) *dynamodb.Client { return emulator.Client(url, wire) }
}

// newLive makes tables of its own for one subtest, and removes them with it.
func newLive(t *testing.T, tables *live.Tables) *backend {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	b := &backend{
		client: tables.Client, locks: tables.Name(), guarding: tables.Name(),
		wire: func() http.RoundTripper { return transport },
	}
	for name, in := range map[string]*dynamodb.CreateTableInput{b.locks: dynamolock.CreateTableInput(""), b.guarding: guardTable()} {
		in.TableName = &name
		require.NoError(t, tables.Create(t.Context(), in))
		t.Cleanup(func() { assert.NoError(t, tables.Delete(context.Background(), name)) })
	}
	return b
}

func (b *backend) sdk(f *leasetest.Faults) *dynamodb.Client {
	wire := b.wire()
	if f != nil {
		wire = f.RoundTripper(wire, refusal)
	}
	return b.client(wire)
}

func (b *backend) Store(t *testing.T, h leasetest.Host) lease.Store {
	t.Helper()
	st, err := dynamolock.New(b.sdk(h.Faults), b.locks, &dynamolock.Options{Clock: h.Clock})
	require.NoError(t, err)
	return st
}

func (b *backend) Guard(t *testing.T, h leasetest.Host) fence.Guard {
	t.Helper()
	g, err := dynamolock.NewGuard(b.sdk(h.Faults), b.guarding, nil)
	require.NoError(t, err)
	return g
}

func (b *backend) Delete(t *testing.T, name string) {
	t.Helper()
	_, err := b.sdk(nil).DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: &b.locks, Key: map[string]types.AttributeValue{"name": &types.AttributeValueMemberS{Value: name}},
	})
	require.NoError(t, err)
}

// refusal is how DynamoDB answers a failure.
func refusal(r *http.Request, f leasetest.Failure) *http.Response {
	status, code := http.StatusBadRequest, "ThrottlingException"
	switch f {
	case leasetest.Throttled:
	case leasetest.Unavailable:
		status, code = http.StatusServiceUnavailable, "ServiceUnavailable"
	case leasetest.Internal:
		status, code = http.StatusInternalServerError, "InternalServerError"
	case leasetest.Denied:
		code = "AccessDeniedException"
	}
	resp := answer(r, status, `{"__type":"com.amazonaws.dynamodb.v20120810#`+code+`","message":"refused on purpose"}`)
	resp.Body = io.NopCloser(resp.Body)
	return resp
}
