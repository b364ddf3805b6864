package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// TestEngines checks everything that a lock needs of an engine, on every engine.
func TestEngines(t *testing.T) {
	for _, engine := range emulator.Engines() {
		t.Run(engine.Name, func(t *testing.T) {
			c := emulator.Client(engine.For(t).URL, nil)
			createTables(t.Context(), t, c)
			for _, check := range []struct {
				name string
				run  func(*testing.T, *dynamodb.Client)
			}{
				{"describes a table", describesTable},
				{"evaluates conditions", evaluatesConditions},
				{"sets several attributes and returns them", setsAttributes},
				{"keeps numbers up to 2^53-1 exactly", keepsNumbers},
				{"returns the old item of a failed condition", returnsOldItem},
				{"tells its time on success and on error", tellsTime},
				{"names errors like the service", namesErrors},
				{"lets one of 100 create an item", oneCreator},
				{"lets one of 100 change a version", oneWriter},
				{"queries a partition in order", queriesPartition},
				{"scans in pages", scansPages},
				{"deletes on a condition", deletesOnCondition},
			} {
				t.Run(check.name, func(t *testing.T) { check.run(t, c) })
			}
		})
	}
}

func describesTable(t *testing.T, c *dynamodb.Client) {
	out, err := c.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String(rows)})
	require.NoError(t, err)
	require.Equal(t, types.TableStatusActive, out.Table.TableStatus)
	require.Equal(t, types.BillingModePayPerRequest, out.Table.BillingModeSummary.BillingMode)
	require.Len(t, out.Table.AttributeDefinitions, 2)
	require.Equal(t, []types.KeySchemaElement{
		{AttributeName: aws.String("part"), KeyType: types.KeyTypeHash},
		{AttributeName: aws.String("sort"), KeyType: types.KeyTypeRange},
	}, out.Table.KeySchema)
}

func evaluatesConditions(t *testing.T, c *dynamodb.Client) {
	put(t.Context(), t, c, locks, with(lock("cond"), item{"holder": str("a"), "version": num("7"), "blank": str("")}))
	for _, check := range []struct {
		name, condition string
		values          item
		met             bool
	}{
		{"cond", "attribute_exists(version)", nil, true},
		{"cond", "attribute_exists(nothing)", nil, false},
		{"cond", "attribute_not_exists(nothing)", nil, true},
		{"cond", "attribute_not_exists(version)", nil, false},
		{"absent", "attribute_exists(holder)", nil, false},
		{"cond", "holder = :v", item{":v": str("a")}, true},
		{"cond", "holder = :v", item{":v": str("b")}, false},
		{"cond", "blank = :v", item{":v": str("")}, true},
		{"cond", "holder = :v", item{":v": str("")}, false},
		{"cond", "nothing = :v", item{":v": str("")}, false},
		{"cond", "version = :v", item{":v": num("7")}, true},
		{"cond", "version < :v", item{":v": num("10")}, true},
		{"cond", "version < :v", item{":v": num("7")}, false},
		{"cond", "version <= :v", item{":v": num("7")}, true},
		{"cond", "version <= :v", item{":v": num("6")}, false},
		{"cond", "nothing < :v", item{":v": num("10")}, false},
		{"cond", "holder < :v", item{":v": str("b")}, true},
		{"cond", "version = :v AND holder = :h", item{":v": num("7"), ":h": str("a")}, true},
		{"cond", "version = :v AND holder = :h", item{":v": num("7"), ":h": str("b")}, false},
		{"cond", "version = :v OR holder = :h", item{":v": num("8"), ":h": str("a")}, true},
		{
			"cond", "attribute_not_exists(version) OR version < :v OR (version = :w AND holder = :h)",
			item{":v": num("7"), ":w": num("7"), ":h": str("a")},
			true,
		},
		{
			"cond", "attribute_not_exists(version) OR version < :v OR (version = :w AND holder = :h)",
			item{":v": num("7"), ":w": num("7"), ":h": str("b")},
			false,
		},
	} {
		values := with(check.values, item{":seen": num("1")})
		_, err := c.UpdateItem(t.Context(), update(check.name, "SET seen = :seen", check.condition, values))
		if check.met {
			require.NoError(t, err, "%s with %v", check.condition, values)
		} else {
			require.Equal(t, "ConditionalCheckFailedException", code(err), "%s with %v: %v", check.condition, values, err)
		}
	}
	require.Empty(t, get(t.Context(), t, c, locks, lock("absent")), "a failed condition must not create the item")
}

func setsAttributes(t *testing.T, c *dynamodb.Client) {
	in := update("set", "SET version = :v, holder = :h, #ttl = :t, #value = :b, nonce = :e, blank = :z", "", item{
		":v": num("7"), ":h": str("a\"<&>é\x01"), ":t": num("30000"), ":b": bin(0, 255, 7), ":e": str(""), ":z": bin(),
	})
	in.ExpressionAttributeNames = map[string]string{"#ttl": "ttl", "#value": "value"}
	out, err := c.UpdateItem(t.Context(), in)
	require.NoError(t, err)
	want := with(lock("set"), item{
		"version": num("7"), "holder": str("a\"<&>é\x01"), "ttl": num("30000"), "value": bin(0, 255, 7), "nonce": str(""), "blank": bin(),
	})
	require.Equal(t, want, out.Attributes)
	require.Equal(t, want, get(t.Context(), t, c, locks, lock("set")))

	out, err = c.UpdateItem(t.Context(), update("set", "SET holder = :h, version = version + :one", "", item{":h": str(""), ":one": num("1")}))
	require.NoError(t, err)
	want = with(want, item{"holder": str(""), "version": num("8")})
	require.Equal(t, want, out.Attributes, "attributes that an update does not name stay")
}

func keepsNumbers(t *testing.T, c *dynamodb.Client) {
	const top = 1<<53 - 1
	for _, n := range []uint64{1, 1700000000123, top - 1, top} {
		v := strconv.FormatUint(n, 10)
		in := update("num", "SET version = :v", "attribute_not_exists(version) OR version < :v", item{":v": num(v)})
		out, err := c.UpdateItem(t.Context(), in)
		require.NoError(t, err, v)
		require.Equal(t, num(v), out.Attributes["version"])
		_, err = c.UpdateItem(t.Context(), in)
		require.Equal(t, "ConditionalCheckFailedException", code(err), "%s is not below itself", v)
	}
	require.Equal(t, with(lock("num"), item{"version": num("9007199254740991")}), get(t.Context(), t, c, locks, lock("num")))
}

func returnsOldItem(t *testing.T, c *dynamodb.Client) {
	old := with(lock("old"), item{"holder": str("a"), "version": num("7"), "value": bin(1), "blank": bin()})
	put(t.Context(), t, c, locks, old)
	all := types.ReturnValuesOnConditionCheckFailureAllOld
	const absent = "attribute_not_exists(version)"

	_, err := c.UpdateItem(t.Context(), update("old", "SET holder = :h", absent, item{":h": str("b")}))
	requireOldItem(t, old, err)
	_, err = c.PutItem(t.Context(), &dynamodb.PutItemInput{
		TableName: aws.String(locks), Item: lock("old"), ConditionExpression: aws.String(absent),
		ReturnValuesOnConditionCheckFailure: all,
	})
	requireOldItem(t, old, err)
	_, err = c.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: aws.String(locks), Key: lock("old"), ConditionExpression: aws.String(absent),
		ReturnValuesOnConditionCheckFailure: all,
	})
	requireOldItem(t, old, err)
	_, err = c.UpdateItem(t.Context(), update("nobody", "SET holder = :h", "attribute_exists(version)", item{":h": str("b")}))
	requireOldItem(t, nil, err)
	unasked := update("old", "SET holder = :h", absent, item{":h": str("b")})
	unasked.ReturnValuesOnConditionCheckFailure = ""
	_, err = c.UpdateItem(t.Context(), unasked)
	requireOldItem(t, nil, err)
	require.Equal(t, old, get(t.Context(), t, c, locks, lock("old")))
}

func requireOldItem(t *testing.T, want item, err error) {
	t.Helper()
	failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, want, failed.Item)
}

func tellsTime(t *testing.T, c *dynamodb.Client) {
	for _, table := range []string{locks, "missing"} {
		before := time.Now()
		out, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String(table), Key: lock("time")})
		at, after := date(t, out, err), time.Now()
		require.WithinRange(t, at, before.Add(-2*time.Second), after.Add(time.Second), table)
	}
}

func namesErrors(t *testing.T, c *dynamodb.Client) {
	ctx := t.Context()
	_, err := c.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("missing"), Key: lock("x")})
	require.Equal(t, "ResourceNotFoundException", code(err), "%v", err)
	_, err = c.UpdateItem(ctx, update("x", "SET name = :v", "", item{":v": str("reserved word, and the key")}))
	require.Equal(t, "ValidationException", code(err), "%v", err)
	_, err = c.UpdateItem(ctx, update("x", "SET ttl = :v", "", item{":v": str("reserved word")}))
	require.Equal(t, "ValidationException", code(err), "%v", err)
	_, err = c.UpdateItem(ctx, update("x", "SET a = :v", "", item{":v": num("1"), ":unused": num("1")}))
	require.Equal(t, "ValidationException", code(err), "%v", err)
	_, err = c.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(locks), Key: item{"wrong": str("x")}})
	require.Equal(t, "ValidationException", code(err), "%v", err)
	_, err = c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(locks), Item: lock("")})
	require.Equal(t, "ValidationException", code(err), "%v", err)
	_, err = c.UpdateItem(ctx, update("", "SET a = :v", "", item{":v": num("1")}))
	require.Equal(t, "ValidationException", code(err), "%v", err)
	_, err = c.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: aws.String(locks), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("name"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("name"), KeyType: types.KeyTypeHash}},
	})
	require.Equal(t, "ResourceInUseException", code(err), "%v", err)
}

// race runs n attempts at once and returns how many succeeded. Those that did not must have failed on their condition.
func race(ctx context.Context, t *testing.T, n int, attempt func(ctx context.Context, i int) error) int64 {
	t.Helper()
	var (
		wins  atomic.Int64
		start = make(chan struct{})
		wg    sync.WaitGroup
		errs  = make([]error, n)
	)
	for i := range n {
		wg.Go(func() {
			<-start
			if errs[i] = attempt(ctx, i); errs[i] == nil {
				wins.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			require.Equal(t, "ConditionalCheckFailedException", code(err), "%v", err)
		}
	}
	return wins.Load()
}

func oneCreator(t *testing.T, c *dynamodb.Client) {
	for round := range 3 {
		name := fmt.Sprintf("creators-%d", round)
		wins := race(t.Context(), t, 100, func(ctx context.Context, i int) error {
			_, err := c.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: aws.String(locks), Item: with(lock(name), item{"holder": num(strconv.Itoa(i))}),
				ConditionExpression:      aws.String("attribute_not_exists(#n)"),
				ExpressionAttributeNames: map[string]string{"#n": "name"},
			})
			return err
		})
		require.EqualValues(t, 1, wins)
	}
}

func oneWriter(t *testing.T, c *dynamodb.Client) {
	put(t.Context(), t, c, locks, with(lock("writers"), item{"version": num("0")}))
	for round := range 3 {
		wins := race(t.Context(), t, 100, func(ctx context.Context, _ int) error {
			_, err := c.UpdateItem(ctx, update("writers", "SET version = :new", "version = :old",
				item{":old": num(strconv.Itoa(round)), ":new": num(strconv.Itoa(round + 1))}))
			return err
		})
		require.EqualValues(t, 1, wins)
	}
	require.Equal(t, num("3"), get(t.Context(), t, c, locks, lock("writers"))["version"])
}

func queriesPartition(t *testing.T, c *dynamodb.Client) {
	for _, sort := range []string{"b", "a.1", "c", "a"} {
		put(t.Context(), t, c, rows, with(row("q", sort), item{"n": num("1")}))
		put(t.Context(), t, c, rows, row("q2", sort))
	}
	query := &dynamodb.QueryInput{
		TableName: aws.String(rows), KeyConditionExpression: aws.String("part = :p"), ConsistentRead: aws.Bool(true),
		ExpressionAttributeValues: item{":p": str("q")}, Limit: aws.Int32(3),
	}
	require.Equal(t, []string{"a", "a.1", "b", "c"}, sorts(t, dynamodb.NewQueryPaginator(c, query)))
	query.KeyConditionExpression = aws.String("part = :p AND begins_with(sort, :s)")
	query.ExpressionAttributeValues[":s"] = str("a")
	require.Equal(t, []string{"a", "a.1"}, sorts(t, dynamodb.NewQueryPaginator(c, query)))
}

func sorts(t *testing.T, pages *dynamodb.QueryPaginator) []string {
	t.Helper()
	var found []string
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, it := range page.Items {
			found = append(found, it["sort"].(*types.AttributeValueMemberS).Value)
		}
	}
	return found
}

func scansPages(t *testing.T, c *dynamodb.Client) {
	want := map[string]bool{}
	for i := range 7 {
		name := fmt.Sprintf("scan/%d", i)
		want[name] = true
		put(t.Context(), t, c, locks, with(lock(name), item{"blank": bin()}))
	}
	pages := dynamodb.NewScanPaginator(c, &dynamodb.ScanInput{
		TableName: aws.String(locks), ConsistentRead: aws.Bool(true), Limit: aws.Int32(3),
		FilterExpression:          aws.String("begins_with(#n, :p)"),
		ExpressionAttributeNames:  map[string]string{"#n": "name"},
		ExpressionAttributeValues: item{":p": str("scan/")},
	})
	found := map[string]bool{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, it := range page.Items {
			require.Equal(t, bin(), it["blank"])
			found[it["name"].(*types.AttributeValueMemberS).Value] = true
		}
	}
	require.Equal(t, want, found)
}

func deletesOnCondition(t *testing.T, c *dynamodb.Client) {
	put(t.Context(), t, c, locks, with(lock("del"), item{"version": num("7")}))
	in := &dynamodb.DeleteItemInput{
		TableName: aws.String(locks), Key: lock("del"), ConditionExpression: aws.String("version = :v"),
		ExpressionAttributeValues: item{":v": num("6")},
	}
	_, err := c.DeleteItem(t.Context(), in)
	require.Equal(t, "ConditionalCheckFailedException", code(err), "%v", err)
	in.ExpressionAttributeValues = item{":v": num("7")}
	_, err = c.DeleteItem(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, get(t.Context(), t, c, locks, lock("del")))
}
