package leaseotel_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/leaseotel"
	"github.com/cloudlease/cloudlease/memlease"
)

// A guarded write under a lease, and a late one with an older token, as the metrics tell them.
func Example() {
	ctx := context.Background()
	reader := sdk.NewManualReader()
	tel, err := leaseotel.New(&leaseotel.Options{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
	if err != nil {
		fmt.Println(err)
		return
	}
	store := memlease.New()
	results := tel.Guard(store.Guard())
	client, err := lease.New(store, &lease.Options{Observer: tel})
	if err != nil {
		fmt.Println(err)
		return
	}
	var late *lease.Lease
	for range 2 {
		err := client.Do(ctx, "billing", tel.Body(func(ctx context.Context, l *lease.Lease) error {
			if late == nil {
				late = l
			}
			return fence.Put(ctx, results, l, "2026-03", []byte("sum"))
		}))
		if err != nil {
			fmt.Println(err)
		}
	}
	_ = fence.Put(ctx, results, late, "2026-03", []byte("an older sum")) // refused

	var got metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &got); err != nil {
		fmt.Println(err)
	}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			for _, p := range sum.DataPoints {
				how, _ := p.Attributes.Value("cloudlease.outcome")
				fmt.Println(m.Name, m.Unit, how.AsString(), p.Value)
			}
		}
	}
	fmt.Println(client.Close(ctx))
	// Unordered output:
	// cloudlease.acquire.attempts {attempt} granted 2
	// cloudlease.lease.active {lease}  0
	// cloudlease.fence.writes {write} stored 2
	// cloudlease.fence.writes {write} stale 1
	// <nil>
}
