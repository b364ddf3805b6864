package meter_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bench/meter"
	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// TestUnitsOnEngine compares the units with those that dynalite says it used.
func TestUnitsOnEngine(t *testing.T) {
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return // only dynalite tells units
	}
	e, err := emulator.StartDynalite(t.Context(), emulator.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	require.NoError(t, emulator.CreateTables(t.Context(), emulator.Client(e.URL, nil), dynamolock.CreateTableInput("locks")))
	m, err := meter.New(t.Context(), e.URL, meter.DynamoDB())
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	db := emulator.Client(m.URL(), nil)
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	key := func(n int) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{"name": text("item" + strconv.Itoa(n))}
	}
	for i, size := range []int{10, 900, 1500, 4000, 9000} {
		item := key(i)
		item["v"], item["n"] = text(strings.Repeat("x", size)), &types.AttributeValueMemberN{Value: "1234567890123"}
		put, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("locks"), Item: item, ReturnConsumedCapacity: "TOTAL"})
		require.NoError(t, err)
		require.InDelta(t, *put.ConsumedCapacity.CapacityUnits, m.Take().Writes, 0, "put of %d", size)
		for _, consistent := range []bool{true, false} {
			got, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{
				TableName: aws.String("locks"), Key: key(i), ConsistentRead: &consistent, ReturnConsumedCapacity: "TOTAL",
			})
			require.NoError(t, err)
			require.InDelta(t, *got.ConsumedCapacity.CapacityUnits, m.Take().Reads, 0, "get of %d, consistent: %v", size, consistent)
		}
		up, err := db.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: aws.String("locks"), Key: key(i), UpdateExpression: aws.String("SET n = :n"), ReturnConsumedCapacity: "TOTAL",
			ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: "1"}},
		})
		require.NoError(t, err)
		require.InDelta(t, *up.ConsumedCapacity.CapacityUnits, m.Take().Writes, 0, "update of %d", size)
	}
	// Eventually consistent: dynalite has one price for both, and the service has not.
	scan, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("locks"), ReturnConsumedCapacity: "TOTAL"})
	require.NoError(t, err)
	require.InDelta(t, *scan.ConsumedCapacity.CapacityUnits, m.Take().Reads, 0, "scan")
}
