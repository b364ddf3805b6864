package memlease

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// Load implements lease.Records.
func (s *Store) Load(ctx context.Context, key string) (lease.Record, error) {
	return do(ctx, s, "load", key, func() (lease.Record, error) {
		rec := s.s.records[key]
		rec.Key, rec.Value = key, slices.Clone(rec.Value)
		return rec, nil
	})
}

// Swap implements lease.Records. Records are kept for ever, whatever keep says.
func (s *Store) Swap(ctx context.Context, old lease.Record, value []byte, _ time.Duration) (lease.Record, error) {
	return do(ctx, s, "swap", old.Key, func() (lease.Record, error) {
		if s.s.records[old.Key].Version != old.Version {
			return lease.Record{}, s.fail("swap", old.Key, lease.ErrConflict, errors.New("read it again"))
		}
		rec := lease.Record{Key: old.Key, Version: old.Version + 1, Value: slices.Clone(value)}
		s.s.records[old.Key] = rec
		rec.Value = slices.Clone(value)
		return rec, nil
	})
}

// Scan implements lease.Records, in the order of keys.
func (s *Store) Scan(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		recs, err := do(ctx, s, "list", prefix, func() ([]lease.Record, error) {
			var recs []lease.Record
			for _, key := range slices.Sorted(maps.Keys(s.s.records)) {
				if strings.HasPrefix(key, prefix) {
					rec := s.s.records[key]
					rec.Value = slices.Clone(rec.Value)
					recs = append(recs, rec)
				}
			}
			return recs, nil
		})
		if err != nil {
			yield(lease.Record{}, err)
			return
		}
		for _, rec := range recs {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

type entry = fence.Entry

// Guard keeps values in the service's memory and refuses stale writes. It implements fence.Guard.
type Guard struct{ s *Store }

// Guard is a guarded storage beside the locks of s.
func (s *Store) Guard() *Guard { return &Guard{s: s} }

// Put implements fence.Guard.
func (g *Guard) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	if err := fence.Check(key, token, holder); err != nil {
		return err
	}
	stale, err := do(ctx, g.s, "put", key, func() (*fence.StaleError, error) {
		have := g.s.s.guarded[key]
		if !fence.Admits(have, token, holder) {
			return &fence.StaleError{Key: key, Token: token, Seen: have.Token, Holder: have.Holder}, nil
		}
		g.s.s.guarded[key] = entry{Value: bytes.Clone(value), Token: token, Holder: holder}
		return nil, nil
	})
	if err != nil {
		return err
	}
	if stale != nil {
		return stale
	}
	return nil
}

// Get implements fence.Guard.
func (g *Guard) Get(ctx context.Context, key string) (fence.Entry, error) {
	return do(ctx, g.s, "get", key, func() (fence.Entry, error) {
		e := g.s.s.guarded[key]
		e.Value = bytes.Clone(e.Value)
		return e, nil
	})
}
