package dynamolock

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// The attributes of a guarded item, beside its key.
const (
	attrGuarded     = "value"        // B
	attrFence       = "fence"        // N, the highest token seen
	attrFenceHolder = "fence_holder" // S, whose it was
)

// GuardOptions are a guard's options.
type GuardOptions struct {
	// Key is the table's hash key, a string attribute. Default "key".
	Key string
}

// Guard is a table of values that refuses stale writes: the token is compared in the condition of the write itself. It
// implements fence.Guard.
type Guard struct {
	api   API
	table string
	key   string
}

// NewGuard makes a guard of a table with a string hash key and no sort key. It makes no request. nil options are all
// defaults.
func NewGuard(api API, table string, o *GuardOptions) (*Guard, error) {
	if api == nil {
		return nil, lease.Invalid("configure", "", "the DynamoDB client is nil")
	}
	if table == "" {
		return nil, lease.Invalid("configure", "", "the guarded DynamoDB table has no name")
	}
	g := &Guard{api: api, table: table, key: "key"}
	if o != nil && o.Key != "" {
		g.key = o.Key
	}
	return g, nil
}

const (
	putSet  = "SET #b = :b, #f = :t, #h = :h"
	putWhen = "attribute_not_exists(#f) OR #f < :t OR (#f = :t AND #h = :h)"
)

var putNames = map[string]string{"#b": attrGuarded, "#f": attrFence, "#h": attrFenceHolder}

// Put implements fence.Guard: one write, two requests when it is refused by an engine that does not say why. The SDK's own
// retries apply; they are safe, because a write that was stored passes again.
func (g *Guard) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	if err := fence.Check(key, token, holder); err != nil {
		return err
	}
	if err := storeerr.Sendable(ctx); err != nil {
		return fail(ctx, "put", g.table, key, true, err)
	}
	_, err := g.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &g.table, Key: item{g.key: str(key)},
		UpdateExpression: aws.String(putSet), ConditionExpression: aws.String(putWhen),
		ExpressionAttributeNames:            putNames,
		ExpressionAttributeValues:           item{":b": bin(value), ":t": num(token), ":h": str(holder)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return nil
	}
	it, conditional := refused(err)
	if !conditional {
		return fail(ctx, "put", g.table, key, true, err)
	}
	have, err := g.entryOf("put", key, it)
	if err == nil && have.Token == 0 {
		have, err = g.Get(ctx, key)
	}
	if err != nil {
		have = fence.Entry{} // refused all the same
	}
	return &fence.StaleError{Key: key, Token: token, Seen: have.Token, Holder: have.Holder}
}

// Get implements fence.Guard: one strongly consistent read.
func (g *Guard) Get(ctx context.Context, key string) (fence.Entry, error) {
	if key == "" {
		return fence.Entry{}, lease.Invalid("get", key, "the key is empty")
	}
	out, err := g.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &g.table, Key: item{g.key: str(key)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return fence.Entry{}, fail(ctx, "get", g.table, key, false, err)
	}
	return g.entryOf("get", key, out.Item)
}

func (g *Guard) entryOf(op, key string, it item) (fence.Entry, error) {
	e, err := entryOf(it)
	if err != nil {
		return fence.Entry{}, &lease.Error{
			Op: op, Store: place(g.table), Name: key, Class: lease.ErrMisconfigured, Err: err, Hint: "guard a table of its own",
		}
	}
	return e, nil
}

// entryOf reads a guarded item; one without a fence has a zero Token.
func entryOf(it item) (fence.Entry, error) {
	var e fence.Entry
	if _, fenced := it[attrFence]; !fenced {
		return e, nil
	}
	d := decoder{it: it}
	e.Token = lease.Token(d.num(attrFence, 1, int64(lease.MaxToken))) //nolint:gosec // positive
	e.Holder = d.str(attrFenceHolder)
	if v, ok := it[attrGuarded].(*types.AttributeValueMemberB); ok {
		e.Value = v.Value
	}
	return e, d.err
}
