package singleton_test

import (
	"context"
	"fmt"
	"time"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/singleton"
)

// The occurrence is delivered twice; the job runs once. The write carries the lease's token, so that a paused run could not
// overwrite a later one's.
func Example() {
	ctx := context.Background()
	store := memlease.New()
	results := store.Guard()
	client, err := lease.New(store, &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err := singleton.New(client, "invoice", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	at, err := singleton.ParseOccurrence("2026-03-02T07:00:00+01:00")
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		res, err := job.Run(ctx, at, func(ctx context.Context, l *lease.Lease) error {
			return fence.Put(ctx, results, l, "invoice", []byte("sent"))
		})
		fmt.Println(res.Occurrence.Format(time.RFC3339), res.Outcome, err)
	}
	fmt.Println(client.Close(ctx))
	// Output:
	// 2026-03-02T06:00:00Z ran <nil>
	// 2026-03-02T06:00:00Z already-done <nil>
	// <nil>
}

// An operator looks at a job's history and lets its last occurrence run once more.
func ExampleJob_Clear() {
	ctx := context.Background()
	client, err := lease.New(memlease.New(), &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err := singleton.New(client, "invoice", &singleton.Options{Policy: singleton.AtMostOnce})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)
	fail := func(context.Context, *lease.Lease) error { return fmt.Errorf("the printer is on fire") }
	for range 2 {
		res, err := job.Run(ctx, at, fail)
		fmt.Println(res.Outcome, err != nil)
	}
	fmt.Println(job.Clear(ctx, at))
	res, err := job.Run(ctx, at, func(context.Context, *lease.Lease) error { return nil })
	fmt.Println(res.Outcome, err)
	h, err := job.History(ctx)
	for _, run := range h.Runs {
		fmt.Println(run.Occurrence.Format(time.RFC3339), run.Outcome)
	}
	fmt.Println(err, client.Close(ctx))
	// Output:
	// failed true
	// failed-before true
	// <nil>
	// ran <nil>
	// 2026-03-02T06:00:00Z ran
	// 2026-03-02T06:00:00Z cleared
	// 2026-03-02T06:00:00Z failed
	// <nil> <nil>
}

// While a job is paused no delivery runs, on any host; each is a success to its platform, and consumes nothing.
func ExampleJob_Pause() {
	ctx := context.Background()
	client, err := lease.New(memlease.New(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err := singleton.New(client, "invoices", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	deliver := func() {
		at := time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)
		res, err := job.Run(ctx, at, func(context.Context, *lease.Lease) error { return nil })
		fmt.Println(res.Outcome, err)
	}
	fmt.Println(job.Pause(ctx, lease.Reason{By: "ana", Why: "month end"}))
	deliver()
	h, err := job.History(ctx)
	fmt.Println(h.Paused.By, h.Paused.Why, err)
	fmt.Println(job.Resume(ctx))
	deliver()
	fmt.Println(client.Close(ctx))
	// Output:
	// <nil>
	// paused <nil>
	// ana month end <nil>
	// <nil>
	// ran <nil>
	// <nil>
}

// A schedule kept in local time: what the clocks skip or show twice is an error, not a guess.
func ExampleLocalTime() {
	at, err := singleton.LocalTime("America/New_York", "2026-07-01T06:00")
	fmt.Println(at, err)
	_, err = singleton.LocalTime("America/New_York", "2026-03-08T02:30")
	fmt.Println(err)
	// Output:
	// 2026-07-01 10:00:00 +0000 UTC <nil>
	// read the occurrence: invalid argument: 2026-03-08T02:30 does not exist in America/New_York, the clocks skip it; write 2026-03-08T06:30:00Z or 2026-03-08T07:30:00Z
}
