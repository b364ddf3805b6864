package kinesisshards_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
	"github.com/cloudlease/cloudlease/shard/kinesisshards"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type kshard struct {
	ShardID  string `json:"ShardId"`
	Parent   string `json:"ParentShardId,omitempty"`
	Adjacent string `json:"AdjacentParentShardId,omitempty"`
}

// stream answers ListShards as the service does, in pages of two.
type stream struct {
	t      *testing.T
	shards []kshard
	failAt int // the page that is refused; 0: none
	stuck  bool
	pages  int
}

func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	require.Equal(s.t, "Kinesis_20131202.ListShards", r.Header.Get("X-Amz-Target"))
	var in struct{ NextToken, StreamName, StreamARN string }
	require.NoError(s.t, json.NewDecoder(r.Body).Decode(&in))
	s.pages++
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	refuse := func(kind string) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"__type":%q,"message":"no"}`, kind)
	}
	if s.pages == s.failAt {
		refuse("LimitExceededException")
		return
	}
	if in.NextToken != "" && in.StreamName != "" || in.NextToken == "" && in.StreamName == "" && in.StreamARN == "" {
		refuse("InvalidArgumentException")
		return
	}
	at, _ := strconv.Atoi(in.NextToken)
	end := min(at+2, len(s.shards))
	out := map[string]any{"Shards": s.shards[at:end]}
	if end < len(s.shards) {
		out["NextToken"] = strconv.Itoa(end)
	}
	if s.stuck {
		out["NextToken"] = "2"
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (s *stream) client() *kinesis.Client {
	return kinesis.New(kinesis.Options{
		Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("id", "key", ""), Retryer: aws.NopRetryer{},
		BaseEndpoint: aws.String("http://kinesis.invalid"), HTTPClient: &http.Client{Transport: emulator.Transport(s, nil)},
	})
}

var reshared = []kshard{
	{"shardId-000000000002", "shardId-000000000000", ""}, // its parent has expired
	{"shardId-000000000003", "", ""},
	{"shardId-000000000004", "shardId-000000000002", "shardId-000000000003"},
	{"shardId-000000000005", "shardId-000000000004", ""},
	{"shardId-000000000006", "shardId-000000000004", ""},
}

func TestShards(t *testing.T) {
	for name, o := range map[string]kinesisshards.Options{
		"by name": {StreamName: "orders"}, "by ARN": {StreamARN: "arn:aws:kinesis:eu-west-1:1:stream/orders"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stream{t: t, shards: reshared}
			source, err := kinesisshards.New(s.client(), o)
			require.NoError(t, err)
			list, err := source.Shards(t.Context())
			require.NoError(t, err)
			require.Equal(t, 3, s.pages)
			require.Equal(t, []shard.Info{
				{ID: "shardId-000000000002"},
				{ID: "shardId-000000000003"},
				{ID: "shardId-000000000004", Parents: []string{"shardId-000000000002", "shardId-000000000003"}},
				{ID: "shardId-000000000005", Parents: []string{"shardId-000000000004"}},
				{ID: "shardId-000000000006", Parents: []string{"shardId-000000000004"}},
			}, list)
		})
	}
}

func TestAPartIsNoList(t *testing.T) {
	s := &stream{t: t, shards: reshared, failAt: 2}
	source, err := kinesisshards.New(s.client(), kinesisshards.Options{StreamName: "orders"})
	require.NoError(t, err)
	list, err := source.Shards(t.Context())
	require.Empty(t, list)
	require.ErrorContains(t, err, "list the shards of the stream orders")
	var limit *types.LimitExceededException
	require.ErrorAs(t, err, &limit)

	s.failAt, s.stuck = 0, true
	_, err = source.Shards(t.Context())
	require.ErrorContains(t, err, "does not go on")
}

type nameless struct{}

func (nameless) ListShards(context.Context, *kinesis.ListShardsInput, ...func(*kinesis.Options)) (*kinesis.ListShardsOutput, error) {
	return &kinesis.ListShardsOutput{Shards: []types.Shard{{}}}, nil
}

func TestBadArguments(t *testing.T) {
	_, err := kinesisshards.New(nil, kinesisshards.Options{StreamName: "x"})
	require.ErrorIs(t, err, lease.ErrInvalid)
	for _, o := range []kinesisshards.Options{{}, {StreamName: "x", StreamARN: "y"}} {
		_, err = kinesisshards.New(nameless{}, o)
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
	source, err := kinesisshards.New(nameless{}, kinesisshards.Options{StreamName: "x"})
	require.NoError(t, err)
	_, err = source.Shards(t.Context())
	require.ErrorContains(t, err, "no id")
}
