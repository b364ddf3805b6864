package lambdalease_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lambdalease"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

type invoices struct {
	Sent int `json:"sent"`
}

// One line makes a function a singleton.
func ExampleWrap() {
	client, err := lease.New(memlease.New(), nil) // dynamolock in a real function
	if err != nil {
		fmt.Println(err)
		return
	}
	start := func(lambda.Handler) { fmt.Println("started") } // lambda.Start in a real function
	start(lambdalease.Wrap(client, "invoices", func(context.Context) (invoices, error) {
		return invoices{Sent: 3}, nil
	}))
	// Output: started
}

// The schedule's event is delivered twice. The handler runs once; the copy succeeds with the zero result.
func ExampleNew() {
	ctx := context.Background()
	store := memlease.New()
	results := store.Guard()
	client, err := lease.New(store, &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
	if err != nil {
		fmt.Println(err)
		return
	}
	send := func(ctx context.Context) (invoices, error) {
		l, _ := lease.FromContext(ctx)
		return invoices{Sent: 3}, fence.Put(ctx, results, l, "invoices", []byte("3"))
	}
	h, err := lambdalease.New(client, "invoices", send, &lambdalease.Options{
		Metrics: io.Discard, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var handler lambda.Handler = h
	event := []byte(`{"source":"aws.events","detail-type":"Scheduled Event","time":"2026-03-02T06:00:00Z"}`)
	for range 2 {
		out, err := handler.Invoke(ctx, event)
		fmt.Println(string(out), err)
	}
	fmt.Println(client.Close(ctx))
	// Output:
	// {"sent":3} <nil>
	// {"sent":0} <nil>
	// <nil>
}
