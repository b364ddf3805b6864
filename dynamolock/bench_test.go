package dynamolock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
	"github.com/cloudlease/cloudlease/singleton"
)

// canned is a service that knows its answers by heart: an acquire is granted to whoever asks, everything else is done. With
// taken, every write is refused.
type canned struct{ taken bool }

const cannedItem = `{"name":{"S":"x"},"version":{"N":"%d"},"holder":{"S":"%s"},"nonce":{"S":"3q2x7kz5f6w4j2p8"},` +
	`"expires":{"N":"%d"},"ttl":{"N":"30000"},"since":{"N":"1"},"running":{"N":"0"}}`

func (c canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	end := time.Now().Add(30 * time.Second).UnixMilli()
	switch {
	case c.taken && strings.HasSuffix(r.Header.Get("X-Amz-Target"), "GetItem"):
		_, _ = fmt.Fprintf(w, `{"Item":`+cannedItem+"}", 7, "other#1", end)
	case c.taken:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"no","Item":`+
			cannedItem+"}", 7, "other#1", end)
	case bytes.Contains(body, []byte("ALL_NEW")):
		_, holder, _ := bytes.Cut(body, []byte(`":h":{"S":"`))
		holder, _, _ = bytes.Cut(holder, []byte(`"`))
		_, _ = fmt.Fprintf(w, `{"Attributes":`+cannedItem+"}", 7, holder, end)
	default:
		_, _ = io.WriteString(w, "{}")
	}
}

// benchmark is the same work through the library and through the bare SDK.
type benchmark struct {
	db    *dynamodb.Client
	store *dynamolock.Store
}

func newBenchmark(b *testing.B, c canned) benchmark {
	b.Helper()
	db := emulator.Client("", emulator.Transport(c, nil))
	st, err := dynamolock.New(db, table, nil)
	require.NoError(b, err)
	_, err = st.Inspect(b.Context(), "x") // warm: the service's time is known
	require.NoError(b, err)
	return benchmark{db, st}
}

// write is one bare UpdateItem, built anew as its values change with every call.
func (x benchmark) write(ctx context.Context, set, condition string, names map[string]string, values attrs, want types.ReturnValue) error {
	_, err := x.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: aws.String(table), Key: attrs{"name": text("x")}, UpdateExpression: &set, ConditionExpression: &condition,
		ExpressionAttributeNames: names, ExpressionAttributeValues: values, ReturnValues: want,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return err
}

func number64(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func (x benchmark) bareAcquire(ctx context.Context) error {
	now := time.Now().UnixMilli()
	return x.write(ctx, "SET #v = :v, #h = :h, #n = :n, #e = :e, #l = :l, #i = :i, #r = :occ",
		"attribute_exists(#k) AND #h = :free AND #v < :v",
		map[string]string{
			"#v": "version", "#h": "holder", "#n": "nonce", "#e": "expires", "#l": "ttl", "#i": "since", "#r": "running", "#k": "name",
		},
		attrs{
			":v": number64(now), ":h": text("me#attempt-id"), ":n": text("3q2x7kz5f6w4j2p8"), ":e": number64(now + 30000),
			":l": number64(30000), ":i": number64(now), ":occ": number64(0), ":free": text(""),
		}, types.ReturnValueAllNew)
}

func (x benchmark) bareRelease(ctx context.Context) error {
	return x.write(ctx, "SET #h = :free, #n = :n, #r = :zero", "#h = :h AND #v = :v",
		map[string]string{"#h": "holder", "#n": "nonce", "#r": "running", "#v": "version"},
		attrs{
			":free": text(""), ":n": text("attempt-id"), ":h": text("me#attempt-id"), ":zero": number64(0), ":v": number64(7),
		}, "")
}

func (x benchmark) bareRenew(ctx context.Context) error {
	return x.write(ctx, "SET #e = :e, #n = :n", "#v = :v AND #h = :h AND #e <= :e",
		map[string]string{"#v": "version", "#h": "holder", "#n": "nonce", "#e": "expires"},
		attrs{
			":v": number64(7), ":h": text("me#attempt-id"), ":e": number64(time.Now().UnixMilli() + 30000), ":n": text("3q2x7kz5f6w4j2p8"),
		}, "")
}

func benchRequest() lease.Request {
	return lease.Request{Name: "x", Holder: "me", TTL: 30 * time.Second, Attempt: "attempt-id", Since: lease.SystemClock()}
}

func BenchmarkAcquireRelease(b *testing.B) {
	x := newBenchmark(b, canned{})
	c, err := lease.New(x.store, &lease.Options{Holder: "me", Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(b, err)
	leasetest.Compare(b,
		leasetest.Way{Name: "bare", Do: func(ctx context.Context) error { return errors.Join(x.bareAcquire(ctx), x.bareRelease(ctx)) }},
		leasetest.Way{Name: "store", Do: func(ctx context.Context) error {
			g, err := x.store.TryAcquire(ctx, benchRequest())
			if err != nil {
				return err
			}
			return x.store.Release(ctx, g, lease.Final{})
		}},
		leasetest.Way{Name: "client", Do: func(ctx context.Context) error {
			l, err := c.TryAcquire(ctx, "x")
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}},
	)
}

func BenchmarkRenew(b *testing.B) {
	x := newBenchmark(b, canned{})
	g, err := x.store.TryAcquire(b.Context(), benchRequest())
	require.NoError(b, err)
	leasetest.Compare(b,
		leasetest.Way{Name: "bare", Do: x.bareRenew},
		leasetest.Way{Name: "store", Do: func(ctx context.Context) error { g, err = x.store.Renew(ctx, g); return err }},
	)
}

// BenchmarkFailFast is an attempt on a lock that another holds: one refused write.
func BenchmarkFailFast(b *testing.B) {
	x := newBenchmark(b, canned{taken: true})
	held := func(_ lease.Grant, err error) error {
		if errors.Is(err, lease.ErrHeld) {
			return nil
		}
		return fmt.Errorf("not held: %w", err)
	}
	leasetest.Compare(b,
		leasetest.Way{Name: "bare", Do: func(ctx context.Context) error {
			if _, refused := errors.AsType[*types.ConditionalCheckFailedException](x.bareAcquire(ctx)); !refused {
				return errors.New("not refused")
			}
			return nil
		}},
		leasetest.Way{Name: "store", Do: func(ctx context.Context) error { return held(x.store.TryAcquire(ctx, benchRequest())) }},
	)
}

// BenchmarkSingletonRun is one scheduled run with an empty body: an acquire with marks and a release that leaves marks and the
// ledger, beside the two bare writes.
func BenchmarkSingletonRun(b *testing.B) {
	x := newBenchmark(b, canned{})
	c, err := lease.New(x.store, &lease.Options{Holder: "me", Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(b, err)
	job, err := singleton.New(c, "x", nil)
	require.NoError(b, err)
	at := time.Now()
	leasetest.Compare(b,
		leasetest.Way{Name: "bare", Do: func(ctx context.Context) error { return errors.Join(x.bareAcquire(ctx), x.bareRelease(ctx)) }},
		leasetest.Way{Name: "singleton", Do: func(ctx context.Context) error {
			res, err := job.Run(ctx, at, func(context.Context, *lease.Lease) error { return nil })
			if err == nil && res.Outcome != singleton.Ran {
				return errors.New("not run: " + string(res.Outcome))
			}
			return err
		}},
	)
}
