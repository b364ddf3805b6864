package dynamolock_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/internal/servertime"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// TestSimulation tries the store by chance. The front ends that hosts talk to differ by as much as is tolerated, reads that need not
// be consistent are not, and some failures are a gateway's whose clock is wrong.
func TestSimulation(t *testing.T) {
	h := leasetest.Harness{Virtual: true, Remade: 3500 * time.Millisecond, New: func(t *testing.T) leasetest.Backend {
		t.Helper()
		return &simulated{service: newService(t), replica: replica{answers: map[string]*http.Response{}}}
	}}
	leasetest.Simulate(t, h, leasetest.Simulation{})
}

// simulated is a DynamoDB at its worst. Its hosts write what is guarded with a Guard or with updates of their own.
type simulated struct {
	*service
	replica replica
	fronts  atomic.Int64
	ahead   atomic.Int64 // of the service's clock
}

func (b *simulated) sdk(h leasetest.Host) *dynamodb.Client {
	front := b.fronts.Add(1)
	skew := time.Duration(front%3) * servertime.Skew / 2
	wire := emulator.Transport(b.handler, func() time.Time { return time.Now().Add(skew + time.Duration(b.ahead.Load())) })
	return emulator.Client("http://dynamodb.invalid", h.Faults.RoundTripper(b.replica.wrap(wire), inTheWay))
}

// inTheWay answers failures, some as one that is not DynamoDB.
func inTheWay(r *http.Request, f leasetest.Failure) *http.Response {
	resp := refusal(r, f)
	if f == leasetest.Unavailable {
		resp.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		return resp
	}
	resp.Header.Set("X-Amzn-Requestid", "refused")
	return resp
}

// replica answers reads that need not be consistent as it did the last time.
type replica struct {
	mu      sync.Mutex
	answers map[string]*http.Response
}

func (p *replica) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		resp, err := next.RoundTrip(r)
		if err != nil || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetItem") || bytes.Contains(body, []byte(`"ConsistentRead":true`)) {
			return resp, err
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		before := p.answers[string(body)]
		resp.Body = io.NopCloser(bytes.NewReader(text))
		kept := *resp
		kept.Body = io.NopCloser(bytes.NewReader(text))
		p.answers[string(body)] = &kept
		if before == nil {
			return resp, nil
		}
		old := *before
		old.Header = resp.Header // its checksum is not looked at, its Date is
		old.Header.Del("X-Amz-Crc32")
		return &old, nil
	})
}

// Store implements leasetest.Backend.
func (b *simulated) Store(t *testing.T, h leasetest.Host) lease.Store {
	t.Helper()
	st, err := dynamolock.New(b.sdk(h), table, &dynamolock.Options{Clock: h.Clock})
	require.NoError(t, err)
	return st
}

// Delete implements leasetest.Backend.
func (b *simulated) Delete(t *testing.T, name string) {
	t.Helper()
	b.call(t, "DeleteItem", map[string]any{"TableName": table, "Key": map[string]any{"name": map[string]any{"S": name}}}, nil)
}

// Copy implements leasetest.Restorer.
func (b *simulated) Copy(t *testing.T, name string) func() {
	t.Helper()
	item := b.raw(t, table, map[string]string{"name": name})
	return func() { b.call(t, "PutItem", map[string]any{"TableName": table, "Item": item}, nil) }
}

// SetTime implements leasetest.Timed.
func (b *simulated) SetTime(d time.Duration) { b.ahead.Store(int64(d)) }

// Guard implements leasetest.Guarded.
func (b *simulated) Guard(t *testing.T, h leasetest.Host) fence.Guard {
	t.Helper()
	sdk := b.sdk(h)
	g, err := dynamolock.NewGuard(sdk, "guarded", nil)
	require.NoError(t, err)
	if b.fronts.Load()%2 == 0 {
		return ownWrites{g, sdk}
	}
	return g
}

// ownWrites writes as users do who fence updates of their own.
type ownWrites struct {
	*dynamolock.Guard
	sdk *dynamodb.Client
}

func (w ownWrites) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	in := &dynamodb.UpdateItemInput{
		TableName: aws.String("guarded"), Key: attrs{"key": text(key)}, UpdateExpression: aws.String("SET #b = :b"),
		ExpressionAttributeNames:  map[string]string{"#b": "value"},
		ExpressionAttributeValues: attrs{":b": &types.AttributeValueMemberB{Value: value}},
	}
	f := dynamolock.Fence{Token: token, Holder: holder}
	f.Update(in)
	_, err := w.sdk.UpdateItem(ctx, in)
	if err == nil {
		return nil
	}
	if err = f.Refused(key, err); errors.Is(err, lease.ErrStale) {
		return err
	}
	return &lease.Error{Op: "put", Name: key, Class: lease.ErrInDoubt, Err: err}
}

// Write implements leasetest.Checked.
func (b *simulated) Write(h leasetest.Host, s lease.Store) (func(context.Context, *lease.Lease) (bool, error), bool) {
	sdk, st := b.sdk(h), s.(*dynamolock.Store)
	return func(ctx context.Context, l *lease.Lease) (bool, error) {
		own := types.TransactWriteItem{Put: &types.Put{TableName: aws.String("guarded"), Item: attrs{"key": text("checked " + l.Name())}}}
		_, err := sdk.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{st.Check(l), own}},
			func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
		if _, canceled := errors.AsType[*types.TransactionCanceledException](err); canceled {
			return false, nil
		}
		return err == nil, err
	}, true
}
