package dynamolock

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/lease"
)

// recordPrefix begins the key of a record. No lock's name has it: names carry no control characters.
const recordPrefix = "\x1f"

// The attributes of a record's item, beside its name.
const (
	attrRevision = "revision" // N
	attrData     = "data"     // B
	attrPurge    = "purge"    // N, unix seconds: for the table's item expiry, if that is turned on for it
)

// Load implements lease.Records: one strongly consistent read.
func (s *Store) Load(ctx context.Context, key string) (lease.Record, error) {
	it, err := s.get(ctx, recordPrefix+key)
	if err != nil {
		return lease.Record{}, fail(ctx, "load", s.table, key, false, err)
	}
	return s.recordOf("load", key, it)
}

func (s *Store) recordOf(op, key string, it item) (lease.Record, error) {
	rec := lease.Record{Key: key}
	if len(it) == 0 {
		return rec, nil
	}
	d := decoder{it: it}
	rec.Version = uint64(d.num(attrRevision, 1, int64(lease.MaxToken))) //nolint:gosec // positive
	if v, ok := it[attrData].(*types.AttributeValueMemberB); ok {
		rec.Value = v.Value
	}
	if d.err != nil {
		return rec, s.foreign(op, key, d.err)
	}
	return rec, nil
}

// Swap implements lease.Records: one write. A record that is kept for a time carries the instant after which the table's item
// expiry, if it is turned on for the attribute "purge", may remove it.
func (s *Store) Swap(ctx context.Context, old lease.Record, value []byte, keep time.Duration) (lease.Record, error) {
	next := lease.Record{Key: old.Key, Version: old.Version + 1, Value: value}
	in := &dynamodb.UpdateItemInput{
		Key: keyOf(recordPrefix + old.Key),
		ExpressionAttributeNames: map[string]string{
			"#r": attrRevision, "#d": attrData, "#p": attrPurge,
		},
		ExpressionAttributeValues: item{":r": num(next.Version), ":d": bin(value), ":p": num(s.purgeAt(keep))},
	}
	set, condition := "SET #r = :r, #d = :d, #p = :p", "attribute_not_exists(#r)"
	if old.Version != 0 {
		condition = "#r = :old"
		in.ExpressionAttributeValues[":old"] = num(old.Version)
	}
	in.UpdateExpression, in.ConditionExpression = &set, &condition
	if _, err := s.update(ctx, in); err != nil {
		if _, conditional := refused(err); conditional {
			return lease.Record{}, &lease.Error{
				Op: "swap", Store: place(s.table), Name: old.Key, Class: lease.ErrConflict, Err: errors.New("read it again"),
			}
		}
		return lease.Record{}, fail(ctx, "swap", s.table, old.Key, true, err)
	}
	return next, nil
}

// purgeAt is when a record that is kept for keep may be removed, in unix seconds on the service's clock; 0: never.
func (s *Store) purgeAt(keep time.Duration) int64 {
	latest, ok := s.time.Latest(s.clock())
	if keep <= 0 || !ok {
		return 0
	}
	return latest.Add(keep).Unix() + 1
}

// Scan implements lease.Records by a consistent scan of the whole table.
func (s *Store) Scan(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		for it, err := range s.scan(ctx, recordPrefix+prefix) {
			var rec lease.Record
			if err == nil {
				rec, err = s.recordOf("list", strings.TrimPrefix(nameOf(it), recordPrefix), it)
			}
			if err != nil {
				yield(lease.Record{}, err)
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}
