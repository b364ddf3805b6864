package consullock

import (
	"context"
	"iter"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/escape"
	"github.com/cloudlease/cloudlease/lease"
)

// look reads a lock in one transaction.
func (s *Store) look(ctx context.Context, op, name string) (record, error) {
	rec := record{name: name}
	pairs, err := s.trees(ctx, op, name, s.lockFolder(name), s.floorFolder(name))
	if err != nil {
		return rec, err
	}
	for _, p := range pairs {
		if _, part, err := s.nameOf(p.Key); err == nil {
			rec.take(part, p)
		}
	}
	return rec, nil
}

// trees reads what is under the prefixes in one step, and makes a second request if there is nothing.
func (s *Store) trees(ctx context.Context, op, name string, prefixes ...string) ([]*api.KVPair, error) {
	var ops api.TxnOps
	for _, p := range prefixes {
		ops = append(ops, opTree(p))
	}
	results, refused, err := s.reads(ctx, ops)
	switch {
	case err != nil:
		return nil, s.fail(ctx, op, name, reading, err)
	case len(refused) > 0:
		return nil, s.refusedRead(op, name, refused)
	}
	pairs := pairsOf(results)
	if len(pairs) == 0 {
		return nil, s.readable(ctx, op, name, prefixes[0])
	}
	return pairs, nil
}

// readable tells whether the ACL token may read what is under a prefix: Consul leaves out of a tree what it may not, without a
// word.
func (s *Store) readable(ctx context.Context, op, name, prefix string) error {
	if _, _, err := s.api.KV().Get(prefix, query(ctx)); err != nil {
		return s.fail(ctx, op, name, reading, err)
	}
	return nil
}

// Inspect implements lease.Store: one request. Consul does not say when a session ends. Details tells more.
func (s *Store) Inspect(ctx context.Context, name string) (lease.Info, error) {
	rec, err := s.look(ctx, "inspect", name)
	if err != nil {
		return lease.Info{}, err
	}
	return rec.describe(), nil
}

// Details is what Consul knows of a lock beside lease.Info.
type Details struct {
	lease.Info
	Session     string        // that holds it; empty: none. It is worth as much as the lock itself: do not log it.
	SessionName string        // which tells the holder's host and process
	Node        string        // what the session belongs to
	LockDelay   time.Duration // of a dead lock: how much longer nobody can have it, at most
}

// Details describes a lock, its session, and what is left of a lock-delay: one request, and one more for the session. Consul does
// not say when a lock-delay began; what is told is what is left if it began when this store first saw it.
func (s *Store) Details(ctx context.Context, name string) (Details, error) {
	const op = "inspect"
	rec, err := s.look(ctx, op, name)
	if err != nil {
		return Details{}, err
	}
	d := Details{Info: rec.describe()}
	if rec.dead() {
		d.LockDelay = s.sawDelay(name, time.Duration(rec.by.LockDelay)*time.Millisecond)
	}
	if !rec.held() {
		return d, nil
	}
	d.Session = rec.lock.Session
	entry, _, err := s.api.Session().Info(rec.lock.Session, query(ctx))
	if err != nil {
		return d, s.fail(ctx, op, name, sessions, err)
	}
	if entry != nil {
		d.SessionName, d.Node = entry.Name, entry.Node
	}
	return d, nil
}

// List implements lease.Lister: one request for all of them.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[lease.Info, error] {
	return func(yield func(lease.Info, error) bool) {
		pairs, err := s.trees(ctx, "list", "", s.opt.Prefix+locksPart+escape.Name(prefix), s.opt.Prefix+floorsPart+escape.Name(prefix))
		if err != nil {
			yield(lease.Info{}, err)
			return
		}
		var names []string
		all := map[string]*record{}
		for _, p := range pairs {
			name, part, err := s.nameOf(p.Key)
			if err != nil {
				yield(lease.Info{}, s.foreign("list", "", err))
				return
			}
			rec := all[name]
			if rec == nil {
				rec = &record{name: name}
				all[name], names = rec, append(names, name)
			}
			rec.take(part, p)
		}
		for _, name := range names {
			if rec := all[name]; rec.lock != nil && !yield(rec.describe(), nil) {
				return
			}
		}
	}
}
