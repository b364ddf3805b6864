package bloblease_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// exampleContainer is a client of a container in this process. Yours is container.NewClient(url, credential, nil) with a
// credential of package azidentity, or one of its siblings for keys, connection strings and signatures.
func exampleContainer() *container.Client {
	c, err := container.NewClientWithNoCredential("http://blob.invalid/account/locks", &container.ClientOptions{
		ClientOptions: azcore.ClientOptions{
			Transport: &http.Client{Transport: emulator.Transport(blobfake.New("locks"), nil)},
			Retry:     policy.RetryOptions{MaxRetries: -1},
		},
	})
	check(err)
	return c
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// quiet are a client's options that log nothing.
func quiet() *lease.Options {
	return &lease.Options{Observer: lease.LogObserver(slog.New(slog.DiscardHandler))}
}

// A job that one process at a time does, and whose result no late process can overwrite.
func Example() {
	ctx, c := context.Background(), exampleContainer()
	store, err := bloblease.New(c, nil)
	check(err)
	client, err := lease.New(store, nil) // nil: a TTL of 30 s, renewed every 10 s
	check(err)
	defer func() { check(client.Close(ctx)) }()
	results, err := bloblease.NewGuard(c, nil)
	check(err)

	err = client.Do(ctx, "billing", func(ctx context.Context, l *lease.Lease) error {
		sum := []byte("1200.00") // the work; ctx ends before the lease can
		return fence.Put(ctx, results, l, "2026-03", sum)
	})
	check(err)

	stored, err := results.Get(ctx, "2026-03")
	check(err)
	fmt.Printf("stored: %s in the blob %s\n", stored.Value, results.BlobName("2026-03"))

	err = results.Put(ctx, "2026-03", []byte("0.00"), stored.Token-1, "a former holder, just woken")
	fmt.Println("stale:", errors.Is(err, lease.ErrStale))
	// Output:
	// stored: 1200.00 in the blob guarded/2026-03
	// stale: true
}

// The content of the lock's own blob, fenced by the service itself.
func ExampleStore_Native() {
	ctx, c := context.Background(), exampleContainer()
	store, err := bloblease.New(c, nil)
	check(err)
	client, err := lease.New(store, quiet())
	check(err)
	l, err := client.TryAcquire(ctx, "billing")
	check(err)

	native, err := store.Native(l)
	check(err)
	put := func(page []byte) error {
		_, err := native.Blob().UploadPages(ctx, body(page), blob.HTTPRange{Count: pageblob.PageBytes}, native.Options())
		return native.Refused(err)
	}
	fmt.Println("while the lock is held:", put(make([]byte, pageblob.PageBytes)))
	check(l.Release(ctx))
	fmt.Println("then it is refused:", errors.Is(put(make([]byte, pageblob.PageBytes)), lease.ErrStale))
	check(client.Close(ctx))
	// Output:
	// while the lock is held: <nil>
	// then it is refused: true
}

// An operator takes a lock away from a holder that is stuck: exactly the grant that was inspected.
func ExampleStore_Break() {
	ctx, c := context.Background(), exampleContainer()
	store, err := bloblease.New(c, nil)
	check(err)
	client, err := lease.New(store, quiet())
	check(err)
	_, err = client.TryAcquire(ctx, "billing")
	check(err)

	seen, err := store.Inspect(ctx, "billing")
	check(err)
	fmt.Println(seen.State)
	check(store.Break(ctx, "billing", seen.Token, lease.Reason{By: "ops@example.com", Why: "stuck since noon"}))
	seen, err = store.Inspect(ctx, "billing")
	check(err)
	fmt.Println(seen.State, "- broken by", seen.Broken.By)
	_ = client.Close(ctx) // its lease is lost
	// Output:
	// held
	// free - broken by ops@example.com
}
