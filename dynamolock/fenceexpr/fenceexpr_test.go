package fenceexpr_test

import (
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/dynamolock/fenceexpr"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type attrs = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

var (
	older    = dynamolock.Fence{Token: 33, Holder: "a"}
	newer    = dynamolock.Fence{Token: 34, Holder: "b"}
	impostor = dynamolock.Fence{Token: 34, Holder: "c"}
	last     = dynamolock.Fence{Token: lease.MaxToken, Holder: "d"}
)

// items is a table of items on some engine.
type items struct{ db *dynamodb.Client }

func newItems(t *testing.T, url string) items {
	t.Helper()
	wire := &http.Transport{}
	t.Cleanup(wire.CloseIdleConnections)
	db := emulator.Client(url, wire)
	in := dynamolock.CreateTableInput("items")
	_, err := db.CreateTable(t.Context(), in)
	require.NoError(t, err)
	return items{db}
}

// update sets the state of an item through the builder, on the condition of the fence and of own, if that is set.
func (i items) update(t *testing.T, name, state string, f dynamolock.Fence, own expression.ConditionBuilder) error {
	t.Helper()
	condition := fenceexpr.Condition(f)
	if own.IsSet() {
		condition = own.And(condition)
	}
	expr, err := expression.NewBuilder().
		WithUpdate(fenceexpr.Set(expression.Set(expression.Name("state"), expression.Value(state)), f)).
		WithCondition(condition).
		Build()
	require.NoError(t, err)
	_, err = i.db.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: aws.String("items"), Key: attrs{"name": text(name)},
		UpdateExpression: expr.Update(), ConditionExpression: expr.Condition(),
		ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return f.Refused(name, err)
}

// put replaces an item through the builder.
func (i items) put(t *testing.T, name, state string, f dynamolock.Fence) error {
	t.Helper()
	expr, err := expression.NewBuilder().WithCondition(fenceexpr.Condition(f)).Build()
	require.NoError(t, err)
	item := f.Attributes()
	item["name"], item["state"] = text(name), text(state)
	_, err = i.db.PutItem(t.Context(), &dynamodb.PutItemInput{
		TableName: aws.String("items"), Item: item, ConditionExpression: expr.Condition(),
		ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return f.Refused(name, err)
}

// plain is an update fenced by dynamolock itself: the two must understand each other.
func (i items) plain(t *testing.T, name, state string, f dynamolock.Fence) error {
	t.Helper()
	in := &dynamodb.UpdateItemInput{
		TableName: aws.String("items"), Key: attrs{"name": text(name)}, UpdateExpression: aws.String("SET #s = :s"),
		ExpressionAttributeNames: map[string]string{"#s": "state"}, ExpressionAttributeValues: attrs{":s": text(state)},
	}
	f.Update(in)
	_, err := i.db.UpdateItem(t.Context(), in)
	return f.Refused(name, err)
}

func (i items) state(t *testing.T, name string) string {
	t.Helper()
	out, err := i.db.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: aws.String("items"), Key: attrs{"name": text(name)}, ConsistentRead: aws.Bool(true),
	})
	require.NoError(t, err)
	state, ok := out.Item["state"].(*types.AttributeValueMemberS)
	require.True(t, ok, "%v", out.Item)
	return state.Value
}

func requireStale(t *testing.T, err error, name string, f, seen dynamolock.Fence) {
	t.Helper()
	require.Equal(t, &fence.StaleError{Key: name, Token: f.Token, Seen: seen.Token, Holder: seen.Holder}, err)
}

func TestEngines(t *testing.T) {
	for _, engine := range emulator.Engines() {
		t.Run(engine.Name, func(t *testing.T) {
			i := newItems(t, engine.For(t).URL)
			t.Run("updates", func(t *testing.T) { updates(t, i) })
			t.Run("puts", func(t *testing.T) { puts(t, i) })
			t.Run("beside an own condition", func(t *testing.T) { besideOwn(t, i) })
			t.Run("beside dynamolock's own fence", func(t *testing.T) { besidePlain(t, i) })
		})
	}
}

func updates(t *testing.T, i items) {
	none := expression.ConditionBuilder{}
	require.NoError(t, i.update(t, "u", "33", older, none))
	require.NoError(t, i.update(t, "u", "34", newer, none))
	require.NoError(t, i.update(t, "u", "34 again", newer, none))
	requireStale(t, i.update(t, "u", "late", older, none), "u", older, newer)
	requireStale(t, i.update(t, "u", "late", impostor, none), "u", impostor, newer)
	require.Equal(t, "34 again", i.state(t, "u"))
	require.NoError(t, i.update(t, "u", "last", last, none))
	requireStale(t, i.update(t, "u", "late", newer, none), "u", newer, last)
	require.Equal(t, "last", i.state(t, "u"))
}

func puts(t *testing.T, i items) {
	require.NoError(t, i.put(t, "p", "34", newer))
	require.NoError(t, i.put(t, "p", "34 again", newer))
	requireStale(t, i.put(t, "p", "late", older), "p", older, newer)
	requireStale(t, i.put(t, "p", "late", impostor), "p", impostor, newer)
	require.Equal(t, "34 again", i.state(t, "p"))
}

func besideOwn(t *testing.T, i items) {
	open := expression.Name("state").Equal(expression.Value("open")).Or(expression.Name("state").Equal(expression.Value("draft")))
	require.NoError(t, i.put(t, "o", "open", older))
	require.NoError(t, i.update(t, "o", "paid", newer, open))
	err := i.update(t, "o", "paid twice", newer, open)
	require.NotErrorIs(t, err, lease.ErrStale, "it was the own condition")
	var failed *types.ConditionalCheckFailedException
	require.ErrorAs(t, err, &failed)
	require.NoError(t, i.put(t, "o", "open", newer))
	requireStale(t, i.update(t, "o", "paid", older, open), "o", older, newer)
	require.Equal(t, "open", i.state(t, "o"))
}

func besidePlain(t *testing.T, i items) {
	none := expression.ConditionBuilder{}
	require.NoError(t, i.plain(t, "b", "33", older))
	require.NoError(t, i.update(t, "b", "34", newer, none))
	requireStale(t, i.plain(t, "b", "late", older), "b", older, newer)
	require.NoError(t, i.plain(t, "b", "last", last))
	requireStale(t, i.update(t, "b", "late", newer, none), "b", newer, last)
	require.Equal(t, "last", i.state(t, "b"))
}

// TestSetOnAnEmptyUpdate: an update may consist of the fence alone.
func TestSetOnAnEmptyUpdate(t *testing.T) {
	expr, err := expression.NewBuilder().WithUpdate(fenceexpr.Set(expression.UpdateBuilder{}, newer)).Build()
	require.NoError(t, err)
	require.Equal(t, "SET #0 = :0, #1 = :1\n", *expr.Update())
	require.Equal(t, map[string]string{"#0": "fence", "#1": "fence_holder"}, expr.Names())
	require.Equal(t, attrs{":0": &types.AttributeValueMemberN{Value: "34"}, ":1": text("b")}, expr.Values())
}
