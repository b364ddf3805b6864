package shard_test

import (
	"context"
	"fmt"
	"log"
	"sort"
	"strconv"
	"sync"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/shard"
)

func quiet() *lease.Options {
	return &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})}
}

// A worker processes three shards of four records each to their end. On a real store every process runs the same lines.
func Example() {
	client, err := lease.New(memlease.New(), quiet())
	if err != nil {
		log.Fatal(err)
	}
	worker, err := shard.New(client, "orders", shard.Static("eu", "us", "asia"), nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var done []string
	err = worker.Run(ctx, func(ctx context.Context, s *shard.Shard) error {
		at, _ := strconv.Atoi(s.Position()) // empty: the beginning
		for at < 4 {
			select {
			case <-s.Stopping(): // the shard moves, or the worker leaves
				return nil
			default:
			}
			at++ // process a batch, sending s.Token() and s.Holder() with every write
			if err := s.Checkpoint(ctx, strconv.Itoa(at)); err != nil {
				return err
			}
		}
		if err := s.Finish(ctx); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if done = append(done, s.ID()); len(done) == 3 {
			cancel()
		}
		return nil
	})
	sort.Strings(done)
	fmt.Println(done, err)
	// Output: [asia eu us] <nil>
}

// List is what "cloudlease shards" shows; Park and Unpark are its commands.
func ExampleList() {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := lease.New(memlease.New(), quiet())
	if err != nil {
		log.Fatal(err)
	}
	worker, err := shard.New(client, "orders", shard.Static("eu"), nil)
	if err != nil {
		log.Fatal(err)
	}
	err = worker.Run(ctx, func(ctx context.Context, s *shard.Shard) error {
		defer cancel()
		return s.Checkpoint(ctx, "42")
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx = context.Background()
	if err := shard.Park(ctx, client, "orders", "eu", "ann", "bad data in record 43"); err != nil {
		log.Fatal(err)
	}
	list, err := shard.List(ctx, client, "orders")
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range list {
		fmt.Println(s.ID, s.State, s.Position, s.Tries, s.Parked)
	}
	fmt.Println(shard.Unpark(ctx, client, "orders", "eu"))
	// Output:
	// eu parked 42 0 bad data in record 43 (by ann)
	// <nil>
}

// A source lists shards that split and merge: a child begins when the end of its parents is stored.
func ExampleSourceFunc() {
	source := shard.SourceFunc(func(context.Context) ([]shard.Info, error) {
		return []shard.Info{{ID: "merged", Parents: []string{"left", "right"}}, {ID: "left"}, {ID: "right"}}, nil
	})
	client, err := lease.New(memlease.New(), &lease.Options{
		TTL: 300e6, Heartbeat: 100e6, Observer: lease.ObserverFunc(func(lease.Event) {}),
	})
	if err != nil {
		log.Fatal(err)
	}
	worker, err := shard.New(client, "halves", source, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = worker.Run(ctx, func(ctx context.Context, s *shard.Shard) error {
		if s.ID() == "merged" {
			fmt.Println("merged comes last")
			defer cancel()
		}
		return s.Finish(ctx)
	})
	fmt.Println(err)
	// Output:
	// merged comes last
	// <nil>
}
