package emulator_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"
)

// The tables of the tests: locks has a hash key only, rows has a range key too.
const (
	locks = "locks"
	rows  = "rows"
)

type item = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(n string) types.AttributeValue { return &types.AttributeValueMemberN{Value: n} }
func bin(b ...byte) types.AttributeValue {
	return &types.AttributeValueMemberB{Value: append([]byte{}, b...)}
}
func lock(name string) item      { return item{"name": str(name)} }
func row(part, sort string) item { return item{"part": str(part), "sort": str(sort)} }
func with(base item, more item) item {
	out := item{}
	maps.Copy(out, base)
	maps.Copy(out, more)
	return out
}

// createTables makes locks and rows and waits for them as a user would.
func createTables(ctx context.Context, t *testing.T, c *dynamodb.Client) {
	t.Helper()
	for table, keys := range map[string][]string{locks: {"name"}, rows: {"part", "sort"}} {
		in := &dynamodb.CreateTableInput{TableName: aws.String(table), BillingMode: types.BillingModePayPerRequest}
		for i, k := range keys {
			in.AttributeDefinitions = append(in.AttributeDefinitions,
				types.AttributeDefinition{AttributeName: aws.String(k), AttributeType: types.ScalarAttributeTypeS})
			in.KeySchema = append(in.KeySchema,
				types.KeySchemaElement{AttributeName: aws.String(k), KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
		}
		_, err := c.CreateTable(ctx, in)
		require.NoError(t, err)
		err = dynamodb.NewTableExistsWaiter(c).Wait(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(table)}, time.Minute)
		require.NoError(t, err)
	}
}

func put(ctx context.Context, t *testing.T, c *dynamodb.Client, table string, it item) {
	t.Helper()
	_, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(table), Item: it})
	require.NoError(t, err)
}

func get(ctx context.Context, t *testing.T, c *dynamodb.Client, table string, key item) item {
	t.Helper()
	out, err := c.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(table), Key: key, ConsistentRead: aws.Bool(true)})
	require.NoError(t, err)
	return out.Item
}

// update is an UpdateItem on locks that asks for everything a lock asks for.
func update(name, set, condition string, values item) *dynamodb.UpdateItemInput {
	in := &dynamodb.UpdateItemInput{
		TableName:                           aws.String(locks),
		Key:                                 lock(name),
		UpdateExpression:                    aws.String(set),
		ExpressionAttributeValues:           values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if condition != "" {
		in.ConditionExpression = aws.String(condition)
	}
	return in
}

// code is the service's name for err, empty where the service did not answer.
func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// date is the answer's Date header, on success from the result's metadata, otherwise from the error.
func date(t *testing.T, out *dynamodb.GetItemOutput, err error) time.Time {
	t.Helper()
	if err == nil {
		at, ok := awsmiddleware.GetServerTime(out.ResultMetadata)
		require.True(t, ok, "no Date in the answer")
		return at
	}
	resp, ok := errors.AsType[*smithyhttp.ResponseError](err)
	require.True(t, ok, "%v", err)
	at, err := http.ParseTime(resp.Response.Header.Get("Date"))
	require.NoError(t, err)
	return at
}
