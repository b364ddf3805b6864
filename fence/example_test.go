package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

// A writer that was paused wakes after another has taken over. The guard refuses what it writes.
func Example() {
	ctx := context.Background()
	store := memlease.New()
	guard := store.Guard()
	client, err := lease.New(store, &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx) //nolint:errcheck // a service in memory has nothing left to give back

	paused, err := client.Acquire(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = paused.Release(ctx) // as if its lease had ended during the pause

	next, err := client.Acquire(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("new writer: ", fence.Put(ctx, guard, next, "report.pdf", []byte("new")))
	err = fence.Put(ctx, guard, paused, "report.pdf", []byte("old"))
	fmt.Println("late writer is stale:", errors.Is(err, lease.ErrStale))
	e, err := guard.Get(ctx, "report.pdf")
	fmt.Println("stored:", string(e.Value), err)
	// Output:
	// new writer:  <nil>
	// late writer is stale: true
	// stored: new <nil>
}
