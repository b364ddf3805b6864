//go:build linux

package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

type shownShard struct {
	ID, State, Owner, Position, Parked string
	Token                              lease.Token
	Tries                              int
}

func (w *world) shards(group string) map[string]shownShard {
	w.t.Helper()
	var all []shownShard
	require.NoError(w.t, json.Unmarshal([]byte(w.ok("shards", group, "-o", "json")), &all))
	byID := map[string]shownShard{}
	for _, s := range all {
		byID[s.ID] = s
	}
	return byID
}

// TestShards: an operator sees what a worker does, takes a shard away from it, and gives it back.
func TestShards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, "[]\n", w.ok("shards", "orders", "-o", "json"))
	store, err := dynamolock.New(emulator.Client(w.endpoint(), nil), "locks", nil)
	require.NoError(t, err)
	client, err := lease.New(store, &lease.Options{TTL: 3 * time.Second, Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(t, err)
	worker, err := shard.New(client, "orders", shard.Static("a", "b"), nil)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Run(ctx, func(ctx context.Context, s *shard.Shard) error {
			if err := s.Checkpoint(ctx, "12"); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-s.Stopping():
			}
			return nil
		})
	}()
	eventually(t, "its shards are not run", func() bool { return w.shards("orders")["b"].Position == "12" })
	before := w.shards("orders")["b"]
	require.Contains(t, before.Owner, client.Holder(), "the worker is a client made of it")
	require.Positive(t, before.Token)
	require.Regexp(t, `(?m)^SHARD +STATE +TOKEN +POSITION +AGE +TRIES +OWNER +NOTE$`, w.ok("shards", "orders"))

	w.ok("park", "orders", "b", "--why", "it cannot be read")
	eventually(t, "it is not handed back", func() bool { s := w.shards("orders")["b"]; return s.Owner == "" && s.Parked != "" })
	require.Contains(t, w.ok("shards", "orders"), "it cannot be read")
	require.NotEmpty(t, w.shards("orders")["a"].Owner)
	w.ok("unpark", "orders", "b", "--at", "7")
	eventually(t, "it is not run again", func() bool { return w.shards("orders")["b"].Token > before.Token })

	r := w.cli("park", "orders", "nothing")
	require.Equal(t, 194, r.code, r.err)
	stop()
	require.NoError(t, errors.Join(<-ended, client.Close(context.Background())))
	top := w.shards("orders")["b"].Token
	w.ok("reseed", "orders")
	require.GreaterOrEqual(t, w.shards("orders")["b"].Token, top)
}
