package drive

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

type blockUpload = blockblob.UploadOptions

const anyETag = azcore.ETagAny

// empty is the content of a blob that only has to be there.
type empty struct{}

func (empty) Read([]byte) (int, error)       { return 0, io.EOF }
func (empty) Seek(int64, int) (int64, error) { return 0, nil }
func (empty) Close() error                   { return nil }

// bare is what an SDK can do.
type bare interface {
	try(ctx context.Context, lock string) error
	renew(ctx context.Context, lock string) error
	release(ctx context.Context, lock string) error
	deliver(ctx context.Context, job string, at time.Time) error
}

// kept is a bare client that waits in a loop and renews what it holds every third of the TTL.
type kept struct {
	bare
	ttl    time.Duration
	shared bool // one renewal is for all locks, from the start
	mu     sync.Mutex
	stop   map[string]chan struct{}
}

func keeping(b bare, ttl time.Duration) *kept {
	return &kept{bare: b, ttl: ttl, stop: map[string]chan struct{}{}}
}

// sharing is a client whose session is renewed as long as its process lives.
func sharing(ctx context.Context, b bare, ttl time.Duration) *kept {
	k := keeping(b, ttl)
	k.shared = true
	go k.keep(ctx, "", nil)
	return k
}

func (k *kept) Acquire(ctx context.Context, lock string) error {
	for {
		err := k.Try(ctx, lock)
		if !errors.Is(err, ErrHeld) {
			return err
		}
		select {
		case <-time.After(waitBare):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (k *kept) Try(ctx context.Context, lock string) error {
	if err := k.try(ctx, lock); err != nil || k.shared {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	stop := make(chan struct{})
	k.stop[lock] = stop
	go k.keep(ctx, lock, stop)
	return nil
}

func (k *kept) keep(ctx context.Context, lock string, stop chan struct{}) {
	tick := time.NewTicker(k.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if errors.Is(k.renew(ctx, lock), ErrHeld) {
				return // it is lost; nobody is told, which is what makes it bare
			}
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (k *kept) Renew(ctx context.Context, lock string) error { return k.renew(ctx, lock) }

func (k *kept) Release(ctx context.Context, lock string) error {
	k.mu.Lock()
	if stop := k.stop[lock]; stop != nil {
		close(stop)
		delete(k.stop, lock)
	}
	k.mu.Unlock()
	return k.release(ctx, lock)
}

func (k *kept) Deliver(ctx context.Context, job string, at time.Time) error {
	return k.deliver(ctx, job, at)
}
