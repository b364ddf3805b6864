package consullock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/escape"
	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// GuardOptions are a guard's options. The zero value of every field is its documented default.
type GuardOptions struct {
	// Prefix begins the guarded keys. Default "cloudlease/guarded/"; like Options.Prefix.
	Prefix string
	// Clock is this host's clocks. Default lease.SystemClock.
	Clock lease.Clock
}

// Guard is a part of Consul's key-value store that refuses stale writes. It implements fence.Guard. It is safe for concurrent use.
// A guarded key is two keys in a folder: the value as it is, and the token and the holder that wrote it.
type Guard struct {
	s      *Store // for its requests and errors
	prefix string

	mu    sync.Mutex
	known map[string]version
}

// version is a guarded key as it was last seen.
type version struct {
	index uint64 // of its fence
	fence.Entry
}

// NewGuard makes a guard of a client's configuration; nil is api.DefaultConfig. It makes no request. nil options are all
// defaults.
func NewGuard(cfg *api.Config, o *GuardOptions) (*Guard, error) {
	if o == nil {
		o = &GuardOptions{}
	}
	prefix := o.Prefix
	if prefix == "" {
		prefix = defaultPrefix + guardPart
	}
	s, err := New(cfg, &Options{Prefix: prefix, Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	return &Guard{s: s, prefix: prefix, known: map[string]version{}}, nil
}

// Key is the key in Consul that holds the value of a guarded key.
func (g *Guard) Key(key string) string { return g.folder(key) + valueKey }

func (g *Guard) folder(key string) string { return g.prefix + escape.Name(key) + "/" }

// guardNote is the value of the key beside the guarded value.
type guardNote struct {
	Token  lease.Token `json:"token"`
	Holder string      `json:"holder"`
}

// putTries bounds the rounds of a Put against other writers of the same key, each of which one of them wins.
const putTries = 100

// maxGuarded is the longest that a key may be in a folder's name.
const maxGuarded = 255

// Put implements fence.Guard: one transaction for a new key and for one that this guard knows as it is; otherwise one read and one
// transaction more for every other writer that came between.
func (g *Guard) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	const op = "put"
	if err := fence.Check(key, token, holder); err != nil {
		return err
	}
	if len(key) > maxGuarded || len(value) > MaxRecord {
		return lease.Invalid(op, key, "the key has more than %d bytes, or the value more than %d", maxGuarded, MaxRecord)
	}
	if err := storeerr.Sendable(ctx); err != nil {
		return g.s.fail(ctx, op, key, writing, err)
	}
	have := g.lastSeen(key)
	for range putTries {
		if fence.Admits(have.Entry, token, holder) { // otherwise it is read again, to say who has written
			written, refused, err := g.write(ctx, key, value, have.index, fence.Entry{Token: token, Holder: holder})
			switch {
			case err != nil:
				return g.s.fail(ctx, op, key, writing, err)
			case len(refused) == 0:
				g.saw(key, written)
				return nil
			case !says(refused, "index is stale"):
				return g.s.refusal(op, key, refused)
			}
		}
		var err error
		if have, err = g.read(ctx, op, key); err != nil {
			return putDoubt(err)
		}
		if !fence.Admits(have.Entry, token, holder) {
			return &fence.StaleError{Key: key, Token: token, Seen: have.Token, Holder: have.Holder}
		}
	}
	return &lease.Error{
		Op: op, Store: g.s.place, Name: key, Class: lease.ErrUnavailable,
		Err: errors.New("others wrote between all tries"), Hint: "try again",
	}
}

// write writes the fence, if it has this index, and the value in one step.
func (g *Guard) write(ctx context.Context, key string, value []byte, index uint64, e fence.Entry) (version, api.TxnErrors, error) {
	put := opSet(g.folder(key)+fenceKey, encode(guardNote{e.Token, e.Holder}))
	put.KV.Verb, put.KV.Index = api.KVCAS, index
	results, refused, err := g.s.txn(ctx, api.TxnOps{put, opSet(g.Key(key), value)})
	if err != nil || len(refused) > 0 {
		return version{}, refused, err
	}
	return version{pairsOf(results)[0].ModifyIndex, e}, nil, nil
}

func (g *Guard) lastSeen(key string) version {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[key]
}

func (g *Guard) saw(key string, v version) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.known[key]; !known && len(g.known) >= maxKept {
		clear(g.known)
	}
	v.Value = nil
	g.known[key] = v
}

// putDoubt: a Put whose read was not answered may follow one that was done; its caller puts again with the same token.
func putDoubt(err error) error {
	if e, ok := err.(*lease.Error); ok && errors.Is(e.Class, lease.ErrUnavailable) { //nolint:errorlint // this package's own
		e.Class = lease.ErrInDoubt
	}
	return err
}

// Get implements fence.Guard: one request, and one more if there is nothing.
func (g *Guard) Get(ctx context.Context, key string) (fence.Entry, error) {
	if key == "" {
		return fence.Entry{}, lease.Invalid("get", key, "the key is empty")
	}
	v, err := g.read(ctx, "get", key)
	return v.Entry, err
}

func (g *Guard) read(ctx context.Context, op, key string) (v version, err error) {
	pairs, err := g.s.trees(ctx, op, key, g.folder(key))
	if err != nil {
		return v, err
	}
	for _, p := range pairs {
		switch p.Key {
		case g.Key(key):
			v.Value = p.Value
		case g.folder(key) + fenceKey:
			var n guardNote
			if json.Unmarshal(p.Value, &n) != nil || n.Token == 0 {
				return v, g.s.foreign(op, key, fmt.Errorf("the key %s cannot be read: it was not written through a guard", p.Key))
			}
			v.Token, v.Holder, v.index = n.Token, n.Holder, p.ModifyIndex
		}
	}
	g.saw(key, v)
	return v, nil
}
