package dynamolock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// exampleDB is a client of a DynamoDB in this process with the tables "locks" (key "name") and "guarded" (key "key"). Yours is
// dynamodb.NewFromConfig(cfg).
func exampleDB() *dynamodb.Client {
	db := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
	for _, in := range []*dynamodb.CreateTableInput{dynamolock.CreateTableInput("locks"), guardTable()} {
		_, err := db.CreateTable(context.Background(), in)
		check(err)
	}
	return db
}

// exampleLease is a store with a lease of the lock "billing".
func exampleLease(ctx context.Context, db *dynamodb.Client) (*dynamolock.Store, *lease.Lease) {
	store, err := dynamolock.New(db, "locks", nil)
	check(err)
	client, err := lease.New(store, &lease.Options{Observer: lease.LogObserver(slog.New(slog.DiscardHandler))})
	check(err)
	l, err := client.TryAcquire(ctx, "billing")
	check(err)
	return store, l
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A job that one process at a time does, and whose result no late process can overwrite.
func Example() {
	ctx, db := context.Background(), exampleDB()
	store, err := dynamolock.New(db, "locks", nil)
	check(err)
	client, err := lease.New(store, nil) // nil: a TTL of 30 s, renewed every 10 s
	check(err)
	defer func() { check(client.Close(ctx)) }()
	results, err := dynamolock.NewGuard(db, "guarded", nil)
	check(err)

	err = client.Do(ctx, "billing", func(ctx context.Context, l *lease.Lease) error {
		sum := []byte("1200.00") // the work; ctx ends before the lease can
		return fence.Put(ctx, results, l, "2026-03", sum)
	})
	check(err)

	stored, err := results.Get(ctx, "2026-03")
	check(err)
	fmt.Printf("stored: %s\n", stored.Value)

	err = results.Put(ctx, "2026-03", []byte("0.00"), stored.Token-1, "a former holder, just woken")
	fmt.Println("stale:", errors.Is(err, lease.ErrStale))
	// Output:
	// stored: 1200.00
	// stale: true
}

// A PutItem of your own, fenced.
func ExampleFence_Put() {
	ctx, db := context.Background(), exampleDB()
	_, l := exampleLease(ctx, db)
	defer func() { check(l.Release(ctx)) }()

	put := func(f dynamolock.Fence, state string) error {
		in := &dynamodb.PutItemInput{
			TableName: aws.String("guarded"),
			Item:      attrs{"key": text("invoice 7"), "state": text(state)},
		}
		f.Put(in) // adds the token to the item and the comparison to the condition
		_, err := db.PutItem(ctx, in)
		return f.Refused("invoice 7", err)
	}
	fmt.Println("holder:", put(dynamolock.FenceOf(l), "paid"))
	err := put(dynamolock.Fence{Token: l.Token() - 1, Holder: "a former holder"}, "open")
	fmt.Println("former holder is stale:", errors.Is(err, lease.ErrStale))
	// Output:
	// holder: <nil>
	// former holder is stale: true
}

// An UpdateItem of your own, fenced beside your own condition, whose failure is not taken for a stale write.
func ExampleFence_Update() {
	ctx, db := context.Background(), exampleDB()
	_, l := exampleLease(ctx, db)
	defer func() { check(l.Release(ctx)) }()

	pay := func(f dynamolock.Fence) error {
		in := &dynamodb.UpdateItemInput{
			TableName:                 aws.String("guarded"),
			Key:                       attrs{"key": text("invoice 7")},
			UpdateExpression:          aws.String("SET #s = :paid"),
			ConditionExpression:       aws.String("attribute_not_exists(#s) OR #s <> :paid"),
			ExpressionAttributeNames:  map[string]string{"#s": "state"},
			ExpressionAttributeValues: attrs{":paid": text("paid")},
		}
		f.Update(in)
		_, err := db.UpdateItem(ctx, in)
		return f.Refused("invoice 7", err)
	}
	f := dynamolock.FenceOf(l)
	fmt.Println("once:", pay(f))
	err := pay(f)
	_, refused := errors.AsType[*types.ConditionalCheckFailedException](err)
	fmt.Println("twice is refused by the own condition:", refused, "- stale:", errors.Is(err, lease.ErrStale))
	err = pay(dynamolock.Fence{Token: l.Token() - 1, Holder: "a former holder"})
	fmt.Println("former holder is stale:", errors.Is(err, lease.ErrStale))
	// Output:
	// once: <nil>
	// twice is refused by the own condition: true - stale: false
	// former holder is stale: true
}

// A DeleteItem of your own, fenced. The token is gone with the item: where a late writer must not make it again, update the item
// to a marker instead.
func ExampleFence_Delete() {
	ctx, db := context.Background(), exampleDB()
	_, l := exampleLease(ctx, db)
	defer func() { check(l.Release(ctx)) }()

	f := dynamolock.FenceOf(l)
	put := &dynamodb.PutItemInput{TableName: aws.String("guarded"), Item: attrs{"key": text("draft 7")}}
	f.Put(put)
	_, err := db.PutItem(ctx, put)
	check(err)

	remove := func(f dynamolock.Fence) error {
		in := &dynamodb.DeleteItemInput{TableName: aws.String("guarded"), Key: attrs{"key": text("draft 7")}}
		f.Delete(in)
		_, err := db.DeleteItem(ctx, in)
		return f.Refused("draft 7", err)
	}
	err = remove(dynamolock.Fence{Token: l.Token() - 1, Holder: "a former holder"})
	fmt.Println("former holder is stale:", errors.Is(err, lease.ErrStale))
	fmt.Println("holder:", remove(f))
	// Output:
	// former holder is stale: true
	// holder: <nil>
}

// Several writes of your own at once, all of them fenced: if one is stale, none is done.
func ExampleFence_Transact() {
	ctx, db := context.Background(), exampleDB()
	_, l := exampleLease(ctx, db)
	defer func() { check(l.Release(ctx)) }()

	settle := func(f dynamolock.Fence) error {
		items := []types.TransactWriteItem{
			{Update: &types.Update{
				TableName: aws.String("guarded"), Key: attrs{"key": text("invoice 7")}, UpdateExpression: aws.String("SET #s = :s"),
				ExpressionAttributeNames: map[string]string{"#s": "state"}, ExpressionAttributeValues: attrs{":s": text("paid")},
			}},
			{Put: &types.Put{TableName: aws.String("guarded"), Item: attrs{"key": text("receipt 7")}}},
		}
		f.Transact(items)
		_, err := db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
		return f.Refused("invoice 7", err)
	}
	fmt.Println("holder:", settle(dynamolock.FenceOf(l)))
	err := settle(dynamolock.Fence{Token: l.Token() - 1, Holder: "a former holder"})
	fmt.Println("former holder is stale:", errors.Is(err, lease.ErrStale))
	// Output:
	// holder: <nil>
	// former holder is stale: true
}

// A transaction that asks the lock itself: it fails from the instant the lock is released, broken or taken, even if the next
// holder has written nothing yet. A fence alone would still let it pass.
func ExampleStore_Check() {
	ctx, db := context.Background(), exampleDB()
	store, l := exampleLease(ctx, db)

	settle := func(state string) error {
		_, err := db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
			TransactItems: []types.TransactWriteItem{
				store.Check(l),
				{Put: &types.Put{TableName: aws.String("guarded"), Item: attrs{"key": text("invoice 7"), "state": text(state)}}},
			},
		})
		return err
	}
	fmt.Println("while the lock is held:", settle("paid"))
	check(l.Release(ctx))
	_, refused := errors.AsType[*types.TransactionCanceledException](settle("late"))
	fmt.Println("then it is refused:", refused)
	// Output:
	// while the lock is held: <nil>
	// then it is refused: true
}

// Often the best lock is none. A result that may be written once: a unique constraint. Two processes may both do the work, one of
// them stores it, and nobody waits, renews or cleans up.
func Example_noLock() {
	ctx, db := context.Background(), exampleDB()

	store := func(sum string) (first bool, err error) {
		_, err = db.PutItem(ctx, &dynamodb.PutItemInput{
			TableName:                aws.String("guarded"),
			Item:                     attrs{"key": text("2026-03"), "sum": text(sum)},
			ConditionExpression:      aws.String("attribute_not_exists(#k)"),
			ExpressionAttributeNames: map[string]string{"#k": "key"},
		})
		if _, exists := errors.AsType[*types.ConditionalCheckFailedException](err); exists {
			return false, nil // somebody has done it: a success
		}
		return err == nil, err
	}
	fmt.Println(store("1200.00"))
	fmt.Println(store("1200.00"))
	// Output:
	// true <nil>
	// false <nil>
}

// No lock: an item that is read, changed and written is written on the condition that it is as it was read. Who loses reads again.
func Example_noLockVersion() {
	ctx, db := context.Background(), exampleDB()
	key := attrs{"key": text("2026-03")}

	read := func() (version string) {
		out, err := db.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("guarded"), Key: key, ConsistentRead: aws.Bool(true)})
		check(err)
		if v, ok := out.Item["version"].(*types.AttributeValueMemberN); ok {
			return v.Value
		}
		return "0"
	}
	write := func(sum, seen string) error {
		_, err := db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: aws.String("guarded"), Key: key,
			UpdateExpression:         aws.String("SET #s = :sum, #v = :seen + :one"),
			ConditionExpression:      aws.String("attribute_not_exists(#v) OR #v = :seen"),
			ExpressionAttributeNames: map[string]string{"#s": "sum", "#v": "version"},
			ExpressionAttributeValues: attrs{
				":sum": text(sum), ":seen": &types.AttributeValueMemberN{Value: seen}, ":one": &types.AttributeValueMemberN{Value: "1"},
			},
		})
		return err
	}
	mine, other := read(), read()
	fmt.Println("mine:", write("1200.00", mine))
	_, changed := errors.AsType[*types.ConditionalCheckFailedException](write("1100.00", other))
	fmt.Println("the other has to read again:", changed)
	fmt.Println("now:", write("1300.00", read()))
	// Output:
	// mine: <nil>
	// the other has to read again: true
	// now: <nil>
}

// No lock: a change that must happen once carries the name of its cause, stored in the same transaction. Whoever delivers it again,
// at whatever time, changes nothing.
func Example_noLockIdempotencyKey() {
	ctx, db := context.Background(), exampleDB()

	credit := func(cause, amount string) (done bool, err error) {
		_, err = db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{
				TableName: aws.String("guarded"), Item: attrs{"key": text(cause)},
				ConditionExpression: aws.String("attribute_not_exists(#k)"), ExpressionAttributeNames: map[string]string{"#k": "key"},
			}},
			{Update: &types.Update{
				TableName: aws.String("guarded"), Key: attrs{"key": text("balance")},
				UpdateExpression: aws.String("ADD #a :a"), ExpressionAttributeNames: map[string]string{"#a": "amount"},
				ExpressionAttributeValues: attrs{":a": &types.AttributeValueMemberN{Value: amount}},
			}},
		}})
		canceled, ok := errors.AsType[*types.TransactionCanceledException](err)
		if ok && aws.ToString(canceled.CancellationReasons[0].Code) == "ConditionalCheckFailed" {
			return false, nil // it was credited before
		}
		return err == nil, err
	}
	fmt.Println(credit("settlement 2026-03", "1200"))
	fmt.Println(credit("settlement 2026-03", "1200"))
	// Output:
	// true <nil>
	// false <nil>
}
