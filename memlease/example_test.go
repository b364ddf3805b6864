package memlease_test

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

// Two hosts in one process: whoever comes second is told who holds the lock.
func ExampleService() {
	ctx := context.Background()
	service := memlease.NewService()
	first, err := lease.New(service.Store(nil), &lease.Options{Holder: "first"})
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := lease.New(service.Store(nil), &lease.Options{Holder: "second"})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := first.TryAcquire(ctx, "billing")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = second.TryAcquire(ctx, "billing")
	fmt.Println("held by another:", errors.Is(err, lease.ErrHeld))
	if err := l.Release(ctx); err != nil {
		fmt.Println(err)
		return
	}
	next, err := second.TryAcquire(ctx, "billing")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("tokens grow:", l.Token(), next.Token())
	fmt.Println(errors.Join(first.Close(ctx), second.Close(ctx)))
	// Output:
	// held by another: true
	// tokens grow: 1 2
	// <nil>
}

// A test loses the answer to every request, to see what the program under test makes of it.
func ExampleOptions() {
	store := memlease.NewService().Store(&memlease.Options{
		Intercept: func(_ context.Context, _ string, do func() error) error {
			return errors.Join(do(), io.ErrUnexpectedEOF)
		},
	})
	_, err := store.Inspect(context.Background(), "billing")
	fmt.Println(err)
	fmt.Println(errors.Is(err, lease.ErrInDoubt))
	// Output:
	// inspect "billing" on memory: outcome unknown: unexpected EOF
	// true
}
