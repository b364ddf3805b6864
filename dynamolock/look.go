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

// The pauses between a waiter's reads: they grow from the first to the last, each spread by half; and how long one may take.
const (
	firstPoll = 300 * time.Millisecond
	lastPoll  = time.Second

	leastPoll = 350 * time.Millisecond // also where a clock stands still just before the end

	lookTimeout = 5 * time.Second
)

// Wait implements lease.Waiter: it reads now and then, never writes, and returns when the lock looks free or dead.
func (s *Store) Wait(ctx context.Context, h *lease.HeldError) error {
	poll := firstPoll
	until := h.RetryAfter
	for {
		pause := lease.Jitter(poll, 0.5)
		if until > 0 {
			pause = max(min(pause, until), leastPoll)
		}
		if !sleep(ctx, pause) {
			return lease.Cause(ctx)
		}
		look, cancel := context.WithTimeout(ctx, lookTimeout) // a request that was swallowed must not stop the waiting
		sight, err := s.load(look, "wait for", h.Name)
		cancel()
		if err != nil {
			return err
		}
		now := s.clock()
		if sight.rec.absent() || sight.rec.free() || s.dead(sight, now) {
			return nil
		}
		until = s.untilDead(sight, now)
		poll = min(poll*3/2, lastPoll)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
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
