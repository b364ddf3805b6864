package consullock

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/escape"
	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// MaxRecord is the largest value of a record, in bytes: half of what Consul keeps in a key, because a value grows by a third on
// its way.
const MaxRecord = 256 << 10

// Load implements lease.Records: one request. A record's version is its key's index.
func (s *Store) Load(ctx context.Context, key string) (lease.Record, error) {
	const op = "load"
	if err := storeerr.Sendable(ctx); err != nil {
		return lease.Record{}, s.fail(ctx, op, key, reading, err)
	}
	pair, _, err := s.api.KV().Get(s.recordPath(key), consistent(ctx))
	switch {
	case err != nil:
		return lease.Record{}, s.fail(ctx, op, key, reading, err)
	case pair == nil:
		return lease.Record{Key: key}, nil
	}
	return recordOf(key, pair), nil
}

func recordOf(key string, p *api.KVPair) lease.Record {
	return lease.Record{Key: key, Version: p.ModifyIndex, Value: p.Value}
}

// Swap implements lease.Records: one request. Records are never deleted.
func (s *Store) Swap(ctx context.Context, old lease.Record, value []byte, _ time.Duration) (lease.Record, error) {
	const op = "swap"
	if len(value) > MaxRecord {
		return lease.Record{}, lease.Invalid(op, old.Key, "the value has %d bytes, more than %d", len(value), MaxRecord)
	}
	swap := opSet(s.recordPath(old.Key), value)
	swap.KV.Verb, swap.KV.Index = api.KVCAS, old.Version
	swap.KV.Flags = old.Version // a write that changes nothing would leave the version as it is
	results, refused, err := s.txn(ctx, api.TxnOps{swap})
	switch {
	case err != nil:
		return lease.Record{}, s.fail(ctx, op, old.Key, writing, err)
	case says(refused, "index is stale"):
		return lease.Record{}, s.conflict(op, old.Key, errors.New("read it again"))
	case len(refused) > 0:
		return lease.Record{}, s.refusal(op, old.Key, refused)
	}
	return lease.Record{Key: old.Key, Version: pairsOf(results)[0].ModifyIndex, Value: value}, nil
}

// Scan implements lease.Records: one request for all of them.
func (s *Store) Scan(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		part := s.opt.Prefix + recordsPart
		pairs, err := s.trees(ctx, "list", "", part+escape.Name(prefix))
		if err != nil {
			yield(lease.Record{}, err)
			return
		}
		for _, p := range pairs {
			key, err := escape.Undo(strings.TrimPrefix(p.Key, part))
			if err != nil {
				yield(lease.Record{}, s.foreign("list", "", err))
				return
			}
			if !yield(recordOf(key, p), nil) {
				return
			}
		}
	}
}
