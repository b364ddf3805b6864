package dynamolock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

type attrs = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

var (
	older = dynamolock.Fence{Token: 33, Holder: "a"}
	newer = dynamolock.Fence{Token: 34, Holder: "b"}
)

// write is one fenced write of the item "k" in some way.
type write func(t *testing.T, api *dynamodb.Client, f dynamolock.Fence, state string) error

var writes = map[string]write{
	"put": func(t *testing.T, api *dynamodb.Client, f dynamolock.Fence, state string) error {
		in := &dynamodb.PutItemInput{TableName: aws.String("guarded"), Item: attrs{"key": text("k"), "state": text(state)}}
		f.Put(in)
		_, err := api.PutItem(t.Context(), in)
		return f.Refused("k", err)
	},
	"update": func(t *testing.T, api *dynamodb.Client, f dynamolock.Fence, state string) error {
		in := &dynamodb.UpdateItemInput{
			TableName: aws.String("guarded"), Key: attrs{"key": text("k")},
			UpdateExpression:         aws.String("set #s = :s"),
			ExpressionAttributeNames: map[string]string{"#s": "state"}, ExpressionAttributeValues: attrs{":s": text(state)},
		}
		f.Update(in)
		_, err := api.UpdateItem(t.Context(), in)
		return f.Refused("k", err)
	},
	"raw expressions": func(t *testing.T, api *dynamodb.Client, f dynamolock.Fence, state string) error {
		values := f.Values()
		values[":s"] = text(state)
		names := f.Names()
		names["#s"] = "state"
		_, err := api.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: aws.String("guarded"), Key: attrs{"key": text("k")},
			UpdateExpression:         aws.String("SET #s = :s, " + f.Assignments()),
			ConditionExpression:      aws.String(f.Condition()),
			ExpressionAttributeNames: names, ExpressionAttributeValues: values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return f.Refused("k", err)
	},
	"transaction": func(t *testing.T, api *dynamodb.Client, f dynamolock.Fence, state string) error {
		items := []types.TransactWriteItem{
			{Update: &types.Update{
				TableName: aws.String("guarded"), Key: attrs{"key": text("k")}, UpdateExpression: aws.String("SET #s = :s"),
				ExpressionAttributeNames: map[string]string{"#s": "state"}, ExpressionAttributeValues: attrs{":s": text(state)},
			}},
			{Put: &types.Put{TableName: aws.String("guarded"), Item: attrs{"key": text("beside"), "state": text(state)}}},
		}
		f.Transact(items)
		_, err := api.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items})
		return f.Refused("k", err)
	},
}

// TestFencedWrites: the newest holder's write passes, again too; an older one and an impostor's with the same token do not.
func TestFencedWrites(t *testing.T) {
	for name, put := range writes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				api := s.sdk(nil)
				require.NoError(t, put(t, api, older, "33"))
				require.NoError(t, put(t, api, newer, "34"))
				require.NoError(t, put(t, api, newer, "34 again"))
				impostor := dynamolock.Fence{Token: newer.Token, Holder: "c"}
				for _, f := range []dynamolock.Fence{older, impostor} {
					err := put(t, api, f, "stale")
					require.ErrorIs(t, err, lease.ErrStale)
					stale := &fence.StaleError{}
					require.ErrorAs(t, err, &stale)
					require.Equal(t, newer.Token, stale.Seen)
					require.Equal(t, "b", stale.Holder)
				}
				it := s.raw(t, "guarded", map[string]string{"key": "k"})
				require.Equal(t, "34 again", it["state"]["S"])
				require.Equal(t, "34", it["fence"]["N"])
			})
		})
	}
}

// TestFenceBesideOwnCondition: the caller's condition is kept, its failure is not taken for a stale write, its maps stay.
func TestFenceBesideOwnCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		api := s.sdk(nil)
		require.NoError(t, writes["put"](t, api, older, "open"))
		names, values := map[string]string{"#s": "state"}, attrs{":s": text("paid"), ":was": text("open"), ":or": text("draft")}
		update := func() error {
			in := &dynamodb.UpdateItemInput{
				TableName: aws.String("guarded"), Key: attrs{"key": text("k")},
				UpdateExpression: aws.String("SET #s = :s"), ConditionExpression: aws.String("#s = :was OR #s = :or"),
				ExpressionAttributeNames: names, ExpressionAttributeValues: values,
			}
			newer.Update(in)
			_, err := api.UpdateItem(t.Context(), in)
			return newer.Refused("k", err)
		}
		require.NoError(t, update())
		err := update()
		require.NotErrorIs(t, err, lease.ErrStale)
		var failed *types.ConditionalCheckFailedException
		require.ErrorAs(t, err, &failed)
		require.Len(t, names, 1)
		require.Len(t, values, 3)
		require.ErrorIs(t, writes["put"](t, api, older, "open"), lease.ErrStale)
	})
}

func TestFencedDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		api := s.sdk(nil)
		remove := func(f dynamolock.Fence) error {
			in := &dynamodb.DeleteItemInput{TableName: aws.String("guarded"), Key: attrs{"key": text("k")}}
			f.Delete(in)
			_, err := api.DeleteItem(t.Context(), in)
			return f.Refused("k", err)
		}
		require.NoError(t, writes["put"](t, api, newer, "34"))
		require.Error(t, remove(older), "refused; whether the engine says by what is its own affair")
		require.NotEmpty(t, s.raw(t, "guarded", map[string]string{"key": "k"}))
		require.NoError(t, remove(newer))
		require.Empty(t, s.raw(t, "guarded", map[string]string{"key": "k"}))
	})
}

// TestCheckOnTheLock: writes in a transaction with the lock's check stop the instant the lock is released, broken or taken,
// before the next holder has written anything.
func TestCheckOnTheLock(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *service, h host, l *lease.Lease){
		"released": func(t *testing.T, _ *service, _ host, l *lease.Lease) {
			t.Helper()
			require.NoError(t, l.Release(t.Context()))
		},
		"broken": func(t *testing.T, s *service, _ host, l *lease.Lease) {
			t.Helper()
			require.NoError(t, s.host(t, nil).Break(t.Context(), l.Name(), l.Token(), why))
		},
		"deleted": func(t *testing.T, s *service, _ host, l *lease.Lease) { t.Helper(); s.deleteItem(t, l.Name()) },
		"taken": func(t *testing.T, s *service, h host, l *lease.Lease) {
			t.Helper()
			require.NoError(t, h.Release(t.Context(), l.Grant(), lease.Final{})) // behind the lease's back
			time.Sleep(time.Second)
			try(t, s.host(t, nil), l.Name(), "next")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				api := s.sdk(nil)
				h := s.host(t, nil)
				c := h.client(t, nil)
				l, err := c.TryAcquire(t.Context(), "x")
				require.NoError(t, err)
				put := func(state string) error {
					_, err := api.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{
						TransactItems: []types.TransactWriteItem{
							h.Check(l),
							{Put: &types.Put{TableName: aws.String("guarded"), Item: attrs{"key": text("k"), "state": text(state)}}},
						},
					})
					return err
				}
				require.NoError(t, put("held"))
				end(t, s, h, l)
				var canceled *types.TransactionCanceledException
				require.ErrorAs(t, put("late"), &canceled)
				require.Equal(t, "held", s.raw(t, "guarded", map[string]string{"key": "k"})["state"]["S"])
				_ = c.Close(t.Context())
			})
		})
	}
}
