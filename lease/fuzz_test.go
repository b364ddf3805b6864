package lease_test

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

// namesStore is what the names are tried on.
type namesStore interface {
	lease.Store
	lease.Lister
}

// FuzzCheckName: a name that is accepted comes back from a listing as it was, two of them are two locks, and a refusal says why
// without repeating what a terminal could choke on.
func FuzzCheckName(f *testing.F) {
	long := strings.Repeat("n", lease.MaxName)
	for _, names := range [][2]string{
		{"", "a"},
		{"a", "A"},
		{"a/b", "a//b"},
		{"a b", " a b "},
		{"\u00e9", "e\u0301"},
		{"😀", "a\u200bb"},
		{long, long + "n"},
		{"a\x00b", "a\nb"},
		{"\x7f", "\u0085"},
		{"\xff", "a\xc3"},
		{"\u2028", "\ufeff"},
		{"#k", ":p"},
		{`"\`, `{"S":"x"}`},
		{`"B":""`, `\u0041`},
		{"\x1frecord", "record"},
		{strings.Repeat("é", 127), strings.Repeat("é", 128)},
		{"%2F", "/"},
		{"a*", "a?"},
	} {
		f.Add(names[0], names[1])
	}
	memory := memlease.NewService()
	db := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
	_, err := db.CreateTable(context.Background(), dynamolock.CreateTableInput("locks"))
	require.NoError(f, err)
	table, err := dynamolock.New(db, "locks", nil)
	require.NoError(f, err)
	remove := func(name string) error {
		_, err := db.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{
			TableName: aws.String("locks"), Key: map[string]types.AttributeValue{"name": &types.AttributeValueMemberS{Value: name}},
		})
		memory.Delete(name)
		return err
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		var accepted []string
		for _, name := range []string{a, b} {
			if err := lease.CheckName(name); err != nil {
				refusedClearly(t, err)
				continue
			}
			if len(accepted) == 0 || accepted[0] != name {
				accepted = append(accepted, name)
			}
		}
		for _, s := range []namesStore{memory.Store(nil), table} {
			for _, name := range accepted {
				_, err := s.TryAcquire(t.Context(), lease.Request{
					Name: name, Holder: "fuzz", TTL: 30 * time.Second, Attempt: "1", Since: lease.SystemClock(),
				})
				require.NoError(t, err, "%q is a lock of its own", name)
			}
			require.ElementsMatch(t, accepted, listed(t, s, ""))
			for _, name := range accepted {
				require.Contains(t, listed(t, s, name), name, "by itself as the prefix")
			}
		}
		for _, name := range accepted {
			require.NoError(t, remove(name))
		}
	})
}

// refusedClearly wants the refusal of a name to be short and printable, whatever the name.
func refusedClearly(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.Less(t, len(err.Error()), 600)
	require.True(t, utf8.ValidString(err.Error()))
	require.False(t, strings.ContainsFunc(err.Error(), unicode.IsControl), "%q", err)
}

func listed(t *testing.T, s lease.Lister, prefix string) []string {
	t.Helper()
	var names []string
	for info, err := range s.List(t.Context(), prefix) {
		require.NoError(t, err)
		require.Equal(t, lease.Held, info.State)
		names = append(names, info.Name)
	}
	return names
}
