package main_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	demo "github.com/cloudlease/cloudlease/e2e/demo"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// recorded is an engine with the tables "locks" and "results" behind a recorder that watches both.
func recorded(t *testing.T) (*demo.Recorder, *dynamodb.Client) {
	t.Helper()
	r := demo.NewRecorder(emulator.NewEmbedded(), map[string]string{"locks": "name", "results": "name"})
	c := emulator.Client("", emulator.Transport(r, nil))
	for _, table := range []string{"locks", "results", "others"} {
		_, err := c.CreateTable(t.Context(), dynamolock.CreateTableInput(table))
		require.NoError(t, err)
	}
	return r, c
}

func TestRecorderKeepsTheVerdictAndWhatItLeft(t *testing.T) {
	r, c := recorded(t)
	guard, err := dynamolock.NewGuard(c, "results", &dynamolock.GuardOptions{Key: "name"})
	require.NoError(t, err)
	require.NoError(t, guard.Put(t.Context(), "day", []byte("newer"), 34, "winner"))
	require.ErrorIs(t, guard.Put(t.Context(), "day", []byte("older"), 33, "loser"), lease.ErrStale)

	writes := r.Writes()
	require.Len(t, writes, 2)
	for i, want := range []demo.Write{
		{Table: "results", Key: "day", Verdict: demo.Took, Fence: "34", Value: []byte("newer")},
		{Table: "results", Key: "day", Verdict: demo.Refusal, Fence: "33", Value: []byte("older")},
	} {
		got := writes[i]
		require.Equal(t, &types.AttributeValueMemberB{Value: []byte("newer")}, got.Item["value"], "what the store has after write %d", i)
		require.Equal(t, &types.AttributeValueMemberN{Value: "34"}, got.Item["fence"])
		require.WithinDuration(t, time.Now(), got.At, time.Minute)
		got.Item, got.At = nil, time.Time{}
		require.Equal(t, want, got)
	}
}

func TestRecorderTellsAFailureFromARefusal(t *testing.T) {
	r, c := recorded(t)
	_, err := c.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: aws.String("results"), Key: demo.Item{"name": &types.AttributeValueMemberS{Value: "day"}},
		UpdateExpression: aws.String("REMOVE fence"),
	})
	require.Error(t, err)
	require.Len(t, r.Writes(), 1)
	require.Equal(t, demo.Failure, r.Writes()[0].Verdict)
	require.Empty(t, r.Writes()[0].Item)
}

func TestRecorderLeavesOtherRequestsAlone(t *testing.T) {
	r, c := recorded(t)
	before := r.Others()
	key := demo.Item{"name": &types.AttributeValueMemberS{Value: "x"}}
	_, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("others"), Item: key})
	require.NoError(t, err)
	out, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("others"), Key: key})
	require.NoError(t, err)
	require.Equal(t, key, out.Item)
	require.Empty(t, r.Writes())
	require.Equal(t, 2, r.Others()-before)
}

// A holder that is never heard of again, the one that takes over, and one after a release.
func TestHoldsAreReadFromTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := recorded(t)
		store, err := dynamolock.New(c, "locks", nil)
		require.NoError(t, err)
		grant := func(holder string, day time.Time) lease.Grant {
			g, err := store.TryAcquire(t.Context(), lease.Request{
				Name: "job", Holder: holder, TTL: 3 * time.Second, Attempt: holder + "-attempt", Since: lease.SystemClock(),
				Mark: &lease.Mark{Occurrence: day.Unix()},
			})
			require.NoError(t, err)
			return g
		}
		first, second := time.Date(1999, 12, 1, 6, 0, 0, 0, time.UTC), time.Date(1999, 12, 2, 6, 0, 0, 0, time.UTC)
		begun := time.Now()
		dead := grant("a", first)
		time.Sleep(time.Second)
		dead, err = store.Renew(t.Context(), dead)
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		heir := grant("b", first)
		time.Sleep(time.Second)
		marks := &lease.Marks{Started: first.Unix(), Finished: first.Unix()}
		require.NoError(t, store.Release(t.Context(), heir, lease.Final{Marks: marks}))
		grant("c", second)

		holds := demo.Holds(r.Writes(), "locks")
		require.Len(t, holds, 3)
		require.Equal(t, "a", holds[0].Holder)
		require.Equal(t, begun, holds[0].From)
		require.Equal(t, dead.Expires, holds[0].Until)
		require.Equal(t, 1, holds[0].Renewals)
		require.False(t, holds[0].Released || holds[0].Finished || holds[0].TookOver)
		require.Equal(t, "b", holds[1].Holder)
		require.Equal(t, begun.Add(12*time.Second), holds[1].Until)
		require.True(t, holds[1].Released && holds[1].Finished && holds[1].TookOver)
		require.Equal(t, []string{"1999-12-01", "1999-12-01", "1999-12-02"}, []string{holds[0].Day, holds[1].Day, holds[2].Day})
		require.False(t, holds[2].TookOver)
	})
}
