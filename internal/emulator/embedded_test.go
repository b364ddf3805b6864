package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// embedded is a client of an engine with its tables, without sockets.
func embedded(t *testing.T) *dynamodb.Client {
	t.Helper()
	c := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
	createTables(t.Context(), t, c)
	return c
}

func TestEmbeddedRefusesWhatItWouldDoWrong(t *testing.T) {
	c := embedded(t)
	put(t.Context(), t, c, locks, with(lock("x"), item{"a": num("1"), "b": num("2")}))
	updates := func(expression string, values item) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.UpdateItem(ctx, update("x", expression, "", values))
			return err
		}
	}
	puts := func(table string, it item) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(table), Item: it})
			return err
		}
	}
	for _, refused := range []struct {
		name, message string
		run           func(context.Context) error
	}{
		{"REMOVE", "REMOVE is not supported", updates("SET a = :v REMOVE b", item{":v": num("1")})},
		{"a swap", "reading an attribute that another action changes", updates("SET a = b, b = a", nil)},
		{
			"SET and ADD of one attribute", "reading an attribute that another action changes",
			updates("SET b = a ADD a :v", item{":v": num("1")}),
		},
		{"an empty list", "empty lists and maps", puts(locks, with(lock("y"), item{"l": &types.AttributeValueMemberL{}}))},
		{"an empty range key", "must not be empty", puts(rows, row("p", ""))},
		{"a dot in a hash key beside a range key", "a dot in the hash key", puts(rows, row("p.q", "r"))},
		{"a numeric range key", "range keys of type N", func(ctx context.Context) error {
			_, err := c.CreateTable(ctx, &dynamodb.CreateTableInput{
				TableName: aws.String("numeric"), BillingMode: types.BillingModePayPerRequest,
				AttributeDefinitions: []types.AttributeDefinition{
					{AttributeName: aws.String("h"), AttributeType: types.ScalarAttributeTypeS},
					{AttributeName: aws.String("r"), AttributeType: types.ScalarAttributeTypeN},
				},
				KeySchema: []types.KeySchemaElement{
					{AttributeName: aws.String("h"), KeyType: types.KeyTypeHash},
					{AttributeName: aws.String("r"), KeyType: types.KeyTypeRange},
				},
			})
			return err
		}},
		{"a parallel scan", "parallel scans", func(ctx context.Context) error {
			_, err := c.Scan(ctx, &dynamodb.ScanInput{TableName: aws.String(locks), Segment: aws.Int32(0), TotalSegments: aws.Int32(2)})
			return err
		}},
		{"an index that is missing", "no global secondary index", func(ctx context.Context) error {
			_, err := c.Query(ctx, &dynamodb.QueryInput{
				TableName: aws.String(locks), IndexName: aws.String("by-holder"), KeyConditionExpression: aws.String("holder = :h"),
				ExpressionAttributeValues: item{":h": str("a")},
			})
			return err
		}},
		{"REMOVE in a transaction", "REMOVE is not supported", func(ctx context.Context) error {
			_, err := c.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
				{Update: &types.Update{TableName: aws.String(locks), Key: lock("x"), UpdateExpression: aws.String("REMOVE a")}},
			}})
			return err
		}},
	} {
		t.Run(refused.name, func(t *testing.T) {
			err := refused.run(t.Context())
			require.Equal(t, "ValidationException", code(err), "%v", err)
			require.ErrorContains(t, err, refused.message)
		})
	}
	require.Equal(t, with(lock("x"), item{"a": num("1"), "b": num("2")}), get(t.Context(), t, c, locks, lock("x")))

	_, err := c.ListTables(t.Context(), &dynamodb.ListTablesInput{})
	require.Equal(t, "UnknownOperationException", code(err), "%v", err)
}

func TestEmbeddedReadsTheOldValueOfTheAttributeItChanges(t *testing.T) {
	c := embedded(t)
	put(t.Context(), t, c, locks, with(lock("x"), item{"a": num("1"), "b": num("2")}))
	out, err := c.UpdateItem(t.Context(), update("x", "SET a = a + :v, c = b, d = if_not_exists(d, :v)", "", item{":v": num("1")}))
	require.NoError(t, err)
	require.Equal(t, with(lock("x"), item{"a": num("2"), "b": num("2"), "c": num("2"), "d": num("1")}), out.Attributes)
}

func TestEmbeddedIndexes(t *testing.T) {
	c := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
	_, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String(locks), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("name"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("holder"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("name"), KeyType: types.KeyTypeHash}},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName:  aws.String("by-holder"),
			KeySchema:  []types.KeySchemaElement{{AttributeName: aws.String("holder"), KeyType: types.KeyTypeHash}},
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll},
		}},
	})
	require.NoError(t, err)
	for name, holder := range map[string]string{"x": "a", "y": "b", "z": "a"} {
		put(t.Context(), t, c, locks, with(lock(name), item{"holder": str(holder)}))
	}
	query := &dynamodb.QueryInput{
		TableName: aws.String(locks), IndexName: aws.String("by-holder"), KeyConditionExpression: aws.String("holder = :h"),
		ExpressionAttributeValues: item{":h": str("a")},
	}
	out, err := c.Query(t.Context(), query)
	require.NoError(t, err)
	require.ElementsMatch(t, []item{
		with(lock("x"), item{"holder": str("a")}), with(lock("z"), item{"holder": str("a")}),
	}, out.Items)

	query.ConsistentRead = aws.Bool(true)
	_, err = c.Query(t.Context(), query)
	require.ErrorContains(t, err, "consistent reads are not supported on global secondary indexes")
}

// fenced is the write that a fence makes: the lock is still ours, and then the row changes.
func fenced(version string) *dynamodb.TransactWriteItemsInput {
	return &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		{ConditionCheck: &types.ConditionCheck{
			TableName: aws.String(locks), Key: lock("x"), ConditionExpression: aws.String("version = :v AND holder = :h"),
			ExpressionAttributeValues:           item{":v": num(version), ":h": str("a")},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}},
		{Update: &types.Update{
			TableName: aws.String(rows), Key: row("p", "r"), UpdateExpression: aws.String("ADD n :one"),
			ExpressionAttributeValues: item{":one": num("1")},
		}},
	}}
}

func TestEmbeddedTransactions(t *testing.T) {
	c := embedded(t)
	held := with(lock("x"), item{"version": num("7"), "holder": str("a")})
	put(t.Context(), t, c, locks, held)

	_, err := c.TransactWriteItems(t.Context(), fenced("7"))
	require.NoError(t, err)
	_, err = c.TransactWriteItems(t.Context(), fenced("6"))
	canceled, ok := errors.AsType[*types.TransactionCanceledException](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "ConditionalCheckFailed", aws.ToString(canceled.CancellationReasons[0].Code))
	require.Equal(t, held, canceled.CancellationReasons[0].Item)
	require.Equal(t, with(row("p", "r"), item{"n": num("1")}), get(t.Context(), t, c, rows, row("p", "r")))

	again := fenced("7")
	again.ClientRequestToken = aws.String("one")
	for range 5 { // the SDK writes maps in random order, so several tries meet several orders
		_, err = c.TransactWriteItems(t.Context(), again)
		require.NoError(t, err)
	}
	require.Equal(t, num("2"), get(t.Context(), t, c, rows, row("p", "r"))["n"], "a repeated request token has one effect")
	other := fenced("6")
	other.ClientRequestToken = again.ClientRequestToken
	_, err = c.TransactWriteItems(t.Context(), other)
	require.Equal(t, "IdempotentParameterMismatchException", code(err), "%v", err)
}

func TestEmbeddedTablesComeAndGoConcurrently(t *testing.T) {
	c := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
	var wg sync.WaitGroup
	errs := make([]error, 50)
	for i := range errs {
		wg.Go(func() {
			name := aws.String(fmt.Sprintf("table-%d", i))
			_, created := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
				TableName: name, BillingMode: types.BillingModePayPerRequest,
				AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("k"), AttributeType: types.ScalarAttributeTypeS}},
				KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("k"), KeyType: types.KeyTypeHash}},
			})
			_, deleted := c.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: name})
			_, described := c.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: name})
			if code(described) == "ResourceNotFoundException" {
				described = nil
			}
			errs[i] = errors.Join(created, deleted, described)
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

func TestEmbeddedAnswersNonsenseLikeTheService(t *testing.T) {
	rt := emulator.Transport(emulator.NewEmbedded(), nil)
	answer, err := post(t.Context(), rt, "{}")
	require.NoError(t, err)
	require.Contains(t, answer, `"__type":"UnknownOperationException"`)

	answer, err = post(t.Context(), target{rt}, "{not json")
	require.NoError(t, err)
	require.Contains(t, answer, `"__type":"SerializationException"`)
}

// target makes every request a GetItem.
type target struct{ next http.RoundTripper }

func (t target) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810.GetItem")
	return t.next.RoundTrip(r)
}
