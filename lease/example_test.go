package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

// The store here is in memory; a program opens one on its lock service.
func Example() {
	ctx := context.Background()
	client, err := lease.New(memlease.New(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = client.Do(ctx, "billing", func(ctx context.Context, l *lease.Lease) error {
		// ctx ends before the lease can. Send the token with every write that the lock protects.
		fmt.Println("working with token", l.Token())
		return ctx.Err()
	})
	fmt.Println(errors.Join(err, client.Close(ctx)))
	// Output:
	// working with token 1
	// <nil>
}

func ExampleClient_TryAcquire() {
	ctx := context.Background()
	service := memlease.NewService()
	mine, err := lease.New(service.Store(nil), &lease.Options{Holder: "mine"})
	if err != nil {
		fmt.Println(err)
		return
	}
	yours, err := lease.New(service.Store(nil), &lease.Options{Holder: "yours", TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := mine.TryAcquire(ctx, "billing")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = yours.TryAcquire(ctx, "billing")
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		fmt.Println("held by mine:", held.Holder == l.Holder(), "token:", held.Token)
	}
	fmt.Println(errors.Join(mine.Close(ctx), yours.Close(ctx)))
	// Output:
	// held by mine: true token: 1
	// <nil>
}

// A lease's context ends with the lease, and says why.
func ExampleLease_Context() {
	ctx := context.Background()
	client, err := lease.New(memlease.New(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := client.Acquire(ctx, "billing")
	if err != nil {
		fmt.Println(err)
		return
	}
	work, cancel := l.Context(ctx)
	defer cancel()
	fmt.Println(work.Err())
	fmt.Println(l.Release(ctx))
	fmt.Println(work.Err(), errors.Is(context.Cause(work), lease.ErrReleased))
	fmt.Println(client.Close(ctx))
	// Output:
	// <nil>
	// <nil>
	// context canceled true
	// <nil>
}

// A small value stays with the lock for its next holder: where it got to.
func ExampleLease_Save() {
	ctx := context.Background()
	client, err := lease.New(memlease.New(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		err = errors.Join(err, client.Do(ctx, "import", func(ctx context.Context, l *lease.Lease) error {
			fmt.Printf("starting after %q\n", l.Value())
			return l.Save(ctx, []byte("row 100"))
		}))
	}
	fmt.Println(errors.Join(err, client.Close(ctx)))
	// Output:
	// starting after ""
	// starting after "row 100"
	// <nil>
}
