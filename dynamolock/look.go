package dynamolock

import (
	"context"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/lease"
)

// Look implements lease.Looker: one strongly consistent read, a fifth of the price of an attempt in vain.
func (s *Store) Look(ctx context.Context, name string) (lease.Token, error) {
	sight, err := s.load(ctx, "wait for", name)
	if err != nil {
		return 0, err
	}
	now, rec := s.clock(), sight.rec
	if rec.absent() || rec.free() || s.dead(sight, now) {
		return rec.version, nil
	}
	return rec.version, rec.held(s.untilDead(sight, now))
}

// Inspect implements lease.Store: one strongly consistent read.
func (s *Store) Inspect(ctx context.Context, name string) (lease.Info, error) {
	sight, err := s.load(ctx, "inspect", name)
	if err != nil {
		return lease.Info{}, err
	}
	return s.describe(sight), nil
}

func (s *Store) describe(sight sighting) lease.Info {
	rec := sight.rec
	info := lease.Info{Name: rec.name, State: lease.Absent}
	if rec.absent() {
		return info
	}
	info.Holder, info.Token, info.Value, info.Marks = rec.displayed(), rec.version, rec.value, rec.marks
	info.Broken = rec.broken
	info.Since, info.Expires = time.UnixMilli(rec.since), time.UnixMilli(rec.expires)
	switch {
	case rec.free():
		info.State = lease.Free
	case s.dead(sight, s.clock()):
		info.State = lease.Dead
	default:
		info.State = lease.Held
	}
	return info
}

// List implements lease.Lister by a consistent scan of the whole table: as many read units as the table has, whatever the
// prefix. An item that is not a lock's ends it with an error.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[lease.Info, error] {
	return func(yield func(lease.Info, error) bool) {
		for it, err := range s.scan(ctx, prefix) {
			var sight sighting
			if err == nil {
				sight, err = s.sight("list", nameOf(it), it)
			}
			if err != nil {
				yield(lease.Info{}, err)
				return
			}
			if !yield(s.describe(sight), nil) {
				return
			}
		}
	}
}

// scan yields the items whose name starts with prefix, page after page; records only if prefix asks for them.
func (s *Store) scan(ctx context.Context, prefix string) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		in := &dynamodb.ScanInput{
			TableName: &s.table, ConsistentRead: aws.Bool(true), ExpressionAttributeNames: map[string]string{"#k": attrName},
		}
		if prefix == "" { // every name, but no record
			in.FilterExpression = aws.String("NOT begins_with(#k, :p)")
			in.ExpressionAttributeValues = item{":p": str(recordPrefix)}
		} else {
			in.FilterExpression = aws.String("begins_with(#k, :p)")
			in.ExpressionAttributeValues = item{":p": str(prefix)}
		}
		for {
			sent := s.clock()
			out, err := s.api.Scan(ctx, in, once) // a read: an ended context is told by the SDK
			if err != nil {
				s.learnFromError(sent, err)
				yield(nil, fail(ctx, "list", s.table, "", false, err))
				return
			}
			s.learn(sent, out.ResultMetadata)
			for _, it := range out.Items {
				if !yield(it, nil) {
					return
				}
			}
			if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
				return
			}
		}
	}
}

func nameOf(it item) string {
	if n, ok := it[attrName].(*types.AttributeValueMemberS); ok {
		return n.Value
	}
	return ""
}
