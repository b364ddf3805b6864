package shard

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// group is a group's records on a client's store.
type group struct {
	keys
	c       *lease.Client
	records lease.Records
}

func newGroup(c *lease.Client, name string) (group, error) {
	g := group{keys: keys{name}, c: c}
	if c == nil {
		return g, lease.Invalid("configure", name, "the client is nil")
	}
	if err := g.check(); err != nil {
		return g, err
	}
	var ok bool
	if g.records, ok = c.Store().(lease.Records); !ok {
		return g, lease.Invalid("configure", name, "%s keeps no records, which shards need", c.Store().Limits().Store)
	}
	return g, nil
}

// fail is an error of this package about a record.
func (g group) fail(op, key string, class, err error) error {
	return &lease.Error{Op: op, Store: g.c.Store().Limits().Store, Name: key, Class: class, Err: err}
}

func (g group) foreign(op, key string, err error) error {
	return &lease.Error{
		Op: op, Store: g.c.Store().Limits().Store, Name: key, Class: lease.ErrMisconfigured, Err: err,
		Hint: "use another group name, or mend the record",
	}
}

func (g group) load(ctx context.Context, key string) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, g.c.Options().CallTimeout)
	defer cancel()
	return g.records.Load(ctx, key)
}

// loadRoster is one read, and what it says; sent is when it was sent.
func (g group) loadRoster(ctx context.Context) (r roster, sent lease.Reading, err error) {
	sent = g.c.Clock()()
	rec, err := g.load(ctx, g.rosterKey())
	if err != nil {
		return r, sent, err
	}
	if r, err = decodeRoster(rec); err != nil {
		err = g.foreign("load", g.rosterKey(), err)
	}
	return r, sent, err
}

// changeRoster applies change until it is stored. change returns false if there is nothing to do.
func (g group) changeRoster(ctx context.Context, change func(roster) (roster, bool)) (roster, error) {
	for try := 1; ; try++ {
		have, _, err := g.loadRoster(ctx)
		if err != nil {
			return have, err
		}
		next, changed := change(have)
		if !changed {
			return have, nil
		}
		next.rec, err = g.swap(ctx, have.rec, next.encode())
		if err == nil {
			return next, nil
		}
		if !errors.Is(err, lease.ErrConflict) {
			return have, err
		}
		if !sleep(ctx, jitter(min(time.Duration(try)*crowd, maxPause), 0.9)) { // many workers start at once
			return have, g.fail("swap", g.rosterKey(), lease.ErrUnavailable, lease.Cause(ctx))
		}
	}
}

// The pauses between tries of a write.
const (
	crowd    = 30 * time.Millisecond
	minPause = 200 * time.Millisecond
	maxPause = time.Second
)

// swap replaces old by value, sent again until there is an answer or ctx ends. What an unanswered try has done is found out by
// reading the record again, so that no write of unknown outcome is left behind while ctx lives.
func (g group) swap(ctx context.Context, old lease.Record, value []byte) (lease.Record, error) {
	doubt := false
	for try := 1; ; try++ {
		rec, err := g.swapOnce(ctx, old, value)
		doubt = doubt || errors.Is(err, lease.ErrInDoubt)
		if doubt && err != nil && ctx.Err() == nil {
			have, looked := g.load(ctx, old.Key)
			switch {
			case looked == nil && have.Version != old.Version && bytes.Equal(have.Value, value):
				return have, nil
			case looked == nil && have.Version != old.Version:
				return have, g.fail("swap", old.Key, lease.ErrConflict, errors.New("read it again"))
			}
		}
		if err == nil || !transient(err) && !doubt {
			return rec, err
		}
		if !sleep(ctx, jitter(g.retryPause(try), 0.3)) {
			if e, ok := errors.AsType[*lease.Error](err); ok && doubt {
				told := *e
				told.Class = lease.ErrInDoubt
				return rec, &told
			}
			return rec, err
		}
	}
}

// retryPause doubles with every try, so that a store that refuses most of what it is sent has room for the renewals of leases.
func (g group) retryPause(try int) time.Duration {
	return min(minPause<<min(try-1, 10), max(g.c.Options().TTL/6, maxPause))
}

func (g group) swapOnce(ctx context.Context, old lease.Record, value []byte) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, g.c.Options().CallTimeout)
	defer cancel()
	return g.records.Swap(ctx, old, value, 0)
}

// held is a row as it was read.
type held struct {
	rec lease.Record
	row row
}

func (g group) loadRow(ctx context.Context, id string) (held, error) {
	rec, err := g.load(ctx, g.rowKey(id))
	if err != nil || rec.Version == 0 {
		return held{rec: rec}, err
	}
	r, err := decodeRow(rec.Value)
	if err != nil {
		err = g.foreign("load", rec.Key, err)
	}
	return held{rec, r}, err
}

// look reads all rows, and the roster after them: whoever is in no such roster has been out of it since before its row was read.
func (g group) look(ctx context.Context) (view, error) {
	v := view{rows: map[string]held{}, bad: map[string]error{}}
	scan, cancel := context.WithTimeout(ctx, g.c.Options().TTL/3)
	defer cancel()
	for rec, err := range g.records.Scan(scan, g.rowsKey()) {
		if err != nil {
			return v, err
		}
		id := strings.TrimPrefix(rec.Key, g.rowsKey())
		r, err := decodeRow(rec.Value)
		if err != nil {
			v.bad[id] = g.foreign("list", rec.Key, err)
			continue
		}
		v.rows[id] = held{rec, r}
		v.order = append(v.order, id)
	}
	slices.Sort(v.order)
	var err error
	v.roster, _, err = g.loadRoster(ctx)
	return v, err
}

// transient tells whether trying again may help.
func transient(err error) bool {
	return errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrInDoubt)
}

func jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*rand.Float64()-1))) //nolint:gosec // spreads load, keeps no secret
}

// sleep waits for d. It tells whether it waited to the end.
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
