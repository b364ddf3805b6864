// Package kinesisshards lists the shards of an Amazon Kinesis data stream for package shard.
//
// # Not promised
//
// It lists shards and reads no records: the function that package shard calls does that, from Shard.Position on (a sequence number,
// or the stream's trim horizon if it is empty), and calls Finish when GetRecords returns no next iterator. A stream that was
// deleted and made again under the same name has shards of the same ids: use another group for it.
package kinesisshards

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// API is the part of *kinesis.Client that a source needs. It takes the IAM action kinesis:ListShards.
type API interface {
	ListShards(context.Context, *kinesis.ListShardsInput, ...func(*kinesis.Options)) (*kinesis.ListShardsOutput, error)
}

// Options name the stream, by one of the two.
type Options struct {
	StreamName string
	StreamARN  string
}

// New makes a source of a stream's shards. It makes no request.
//
// A shard's parents are its parent and, after a merge, the adjacent one. Those that the stream does not list any more are left
// out: their records have expired, so that nothing of them can come before their children. If the group has a record of
// such a parent, it was made when both were listed and still says whether the child has to wait.
func New(api API, o Options) (shard.Source, error) {
	if api == nil {
		return nil, lease.Invalid("configure", "", "the Kinesis client is nil")
	}
	if (o.StreamName == "") == (o.StreamARN == "") {
		return nil, lease.Invalid("configure", o.StreamName, "give the stream's name or its ARN")
	}
	return &source{api, o}, nil
}

type source struct {
	api API
	o   Options
}

// Shards implements shard.Source: one request for every thousand shards. A page that fails fails the whole list.
func (s *source) Shards(ctx context.Context) ([]shard.Info, error) {
	var list []shard.Info
	in := &kinesis.ListShardsInput{}
	s.name(in)
	for {
		out, err := s.api.ListShards(ctx, in)
		if err != nil {
			return nil, s.fail(err)
		}
		for _, sh := range out.Shards {
			if sh.ShardId == nil {
				return nil, s.fail(errors.New("a shard has no id"))
			}
			info := shard.Info{ID: *sh.ShardId}
			for _, p := range []*string{sh.ParentShardId, sh.AdjacentParentShardId} {
				if p != nil {
					info.Parents = append(info.Parents, *p)
				}
			}
			list = append(list, info)
		}
		if out.NextToken == nil {
			return listed(list), nil
		}
		if in.NextToken != nil && *in.NextToken == *out.NextToken {
			return nil, s.fail(errors.New("the list does not go on: two pages have one token"))
		}
		in = &kinesis.ListShardsInput{NextToken: out.NextToken} // the service refuses a name beside it
		if s.o.StreamARN != "" {
			in.StreamARN = &s.o.StreamARN
		}
	}
}

func (s *source) name(in *kinesis.ListShardsInput) {
	if s.o.StreamARN != "" {
		in.StreamARN = &s.o.StreamARN
		return
	}
	in.StreamName = &s.o.StreamName
}

func (s *source) fail(err error) error {
	return fmt.Errorf("list the shards of the stream %s%s: %w", s.o.StreamName, s.o.StreamARN, err)
}

// listed leaves out parents that are not in the list.
func listed(list []shard.Info) []shard.Info {
	ids := make(map[string]bool, len(list))
	for _, info := range list {
		ids[info.ID] = true
	}
	for i := range list {
		var parents []string
		for _, p := range list[i].Parents {
			if ids[p] {
				parents = append(parents, p)
			}
		}
		list[i].Parents = parents
	}
	return list
}
