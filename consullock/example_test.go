package consullock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// A program runs a job that no other instance runs at the same time, and whose writes carry the token. In your own program the
// configuration is api.DefaultConfig(), which reads CONSUL_HTTP_ADDR and CONSUL_HTTP_TOKEN.
func Example() {
	cfg := newService(consulfake.Options{}).config(nil)
	store, err := consullock.New(cfg, nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err := lease.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	results, err := consullock.NewGuard(cfg, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = client.Do(context.Background(), "billing", func(ctx context.Context, l *lease.Lease) error {
		return fence.Put(ctx, results, l, "2026-03", []byte("42.00"))
	})
	if err != nil {
		log.Fatal(err)
	}
	entry, err := results.Get(context.Background(), "2026-03")
	fmt.Println(string(entry.Value), entry.Token > 0, err)
	_ = client.Close(context.Background())
	// Output: 42.00 true <nil>
}

// A write to a key of one's own is done only while the lock has this very grant.
func ExampleStore_Fence() {
	cfg := newService(consulfake.Options{}).config(nil)
	store, err := consullock.New(cfg, nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err := lease.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	consul, err := api.NewClient(cfg)
	if err != nil {
		log.Fatal(err)
	}
	l, err := client.Acquire(context.Background(), "report")
	if err != nil {
		log.Fatal(err)
	}
	f, err := store.Fence(l)
	if err != nil {
		log.Fatal(err)
	}
	write := func(value string) error {
		done, resp, _, err := consul.Txn().Txn(append(f.Ops(), f.Set("report/latest", []byte(value))), nil)
		if err != nil || done {
			return err
		}
		return f.Refused(resp.Errors)
	}
	fmt.Println(write("of the holder"))
	_ = client.Close(context.Background()) // it releases the lease
	fmt.Println(errors.Is(write("of a former holder"), lease.ErrStale))
	// Output:
	// <nil>
	// true
}
