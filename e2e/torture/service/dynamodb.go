//go:build unix

package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// The tables.
const (
	locksTable   = "locks"
	guardedTable = "guarded"
)

// The credentials of the workers. Only what is long and its own can be looked for in logs.
const (
	AccessKey    = "AKIATORTURE000000000"
	SecretKey    = "made-up/secret+key/of+the+torture0000000" //nolint:gosec // as it says
	SessionToken = "made-up+session/token+of/the+torture=="   //nolint:gosec // likewise
)

// DynamoDB is dynamolock on dynalite.
type DynamoDB struct{}

// Name implements Service.
func (DynamoDB) Name() string { return "dynamodb" }

// TTL implements Service.
func (DynamoDB) TTL() time.Duration { return 3 * time.Second }

// Bound implements Service.
func (d DynamoDB) Bound() time.Duration { return 2*d.TTL() + 3*time.Second }

// Durable implements Service: dynalite with a data directory has lost no acknowledged write.
func (DynamoDB) Durable() bool { return true }

// Anew implements Service: their ends are stored.
func (DynamoDB) Anew() bool { return false }

// Kinds implements Service.
func (DynamoDB) Kinds() []proxy.Kind { return append(network(), proxy.WrongDate) }

// Start implements Service.
func (DynamoDB) Start(ctx context.Context, dir string, port int) (*Engine, error) {
	e, err := emulator.StartDynalite(ctx, emulator.Options{DataDir: dir, Port: port})
	if err != nil {
		return nil, err
	}
	return &Engine{URL: e.URL, Kill: e.Close}, nil
}

// Prepare implements Service.
func (DynamoDB) Prepare(ctx context.Context, url string) error {
	return emulator.CreateTables(ctx, emulator.Client(url, nil), dynamolock.CreateTableInput(locksTable), Table(guardedTable, "key"))
}

// Table describes a table with string keys: the hash key and, if there is a second, the range key.
func Table(name string, keys ...string) *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest}
	for i, key := range keys {
		kind := []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: aws.String(key), KeyType: kind})
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{
			AttributeName: aws.String(key), AttributeType: types.ScalarAttributeTypeS,
		})
	}
	return in
}

// Open implements Service. The client does not retry by itself: every try of a guarded write is an operation of its own, whose
// late effect the checker has to know of.
func (DynamoDB) Open(url string, clock lease.Clock) (Opened, error) {
	wire := &http.Transport{MaxIdleConnsPerHost: 16}
	api := dynamodb.New(emulator.Client(url, wire).Options(), func(o *dynamodb.Options) {
		o.Credentials = credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, SessionToken)
	})
	s, err := dynamolock.New(api, locksTable, &dynamolock.Options{Clock: clock})
	if err != nil {
		return Opened{}, err
	}
	g, err := dynamolock.NewGuard(api, guardedTable, nil)
	return Opened{Store: s, Guard: g, Close: wire.CloseIdleConnections}, err
}

// Leftovers implements Service.
func (d DynamoDB) Leftovers(ctx context.Context, url string) ([]string, error) {
	o, err := d.Open(url, nil)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return locked(ctx, o.Store)
}

// Classify implements proxy.Service.
func (DynamoDB) Classify(r *http.Request, body []byte) proxy.Request {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var sent struct {
		TableName      string
		ConsistentRead bool
		Key            json.RawMessage
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		return proxy.Request{Op: "unknown"}
	}
	read := op == "GetItem" || op == "Query" || op == "Scan"
	return proxy.Request{
		Op: sent.TableName + "." + op, Key: sent.TableName + " " + string(sent.Key),
		Read: read, Consistent: sent.ConsistentRead,
		// A guarded write that is delivered twice may come after a later one of the same token, which is no stale write.
		Repeatable: sent.TableName == locksTable && !read,
	}
}

// SecretKinds implements Service.
func (DynamoDB) SecretKinds() []string {
	return []string{attempt, nonce, signature, sessionToken, credential}
}

// Credentials implements Service.
func (DynamoDB) Credentials() []string { return []string{SecretKey} }

// Secrets implements proxy.Service.
func (DynamoDB) Secrets(m proxy.Message, found func(kind, secret string)) {
	found(sessionToken, m.Header.Get("X-Amz-Security-Token"))
	_, signed, _ := strings.Cut(m.Header.Get("Authorization"), "Signature=")
	found(signature, signed)
	for name, text := range texts(m.Body) {
		switch name {
		case ":h", "holder":
			if _, id, ok := strings.Cut(text, "#"); ok {
				found(attempt, id)
			}
		case ":n", ":seen", "nonce":
			found(nonce, text)
		}
	}
}

// Answer implements proxy.Service.
func (DynamoDB) Answer(kind proxy.Kind, _ *http.Request) proxy.Answer {
	status, code := http.StatusInternalServerError, "com.amazonaws.dynamodb.v20120810#InternalServerError"
	if kind == proxy.Throttle {
		status, code = http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"
	}
	return proxy.Answer{
		Status: status, Body: fmt.Sprintf(`{"__type":%q,"message":"made by the fault proxy"}`, code),
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "X-Amzn-Requestid": {"FAULT"}},
	}
}
