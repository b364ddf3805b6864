// lease
// HELD under -race.
package lease_test

import (
	"context"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestManyCallsAtOnce(t *testing.T) {
	svc := memlease.NewService()
	end := time.Now().Add(6 * time.Second)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for time.Now().Before(end) {
				root, err := lease.New(svc.Store(&memlease.Options{Intercept: func(ctx context.Context, op string, do func() error) error {
					switch rand.Intn(8) {
					case 0:
						_ = do()
						return context.DeadlineExceeded
					case 1:
						return context.DeadlineExceeded
					case 2:
						select {
						case <-time.After(time.Duration(rand.Intn(5)) * time.Millisecond):
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					return do()
				}}), &lease.Options{TTL: 40 * time.Millisecond, Heartbeat: 5 * time.Millisecond, CallTimeout: 10 * time.Millisecond, Observer: lease.ObserverFunc(func(lease.Event) {})})
				require.NoError(t, err)
				sub, err := root.With(lease.Options{TTL: 30 * time.Millisecond, CallTimeout: 10 * time.Millisecond})
				require.NoError(t, err)
				var in sync.WaitGroup
				for _, c := range []*lease.Client{root, sub} {
					for range 2 {
						in.Go(func() {
							ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.Intn(40))*time.Millisecond)
							defer cancel()
							l, err := c.Acquire(ctx, "x")
							if err != nil {
								return
							}
							var u sync.WaitGroup
							u.Go(func() { _ = l.Save(ctx, []byte("1")) })
							u.Go(func() { x, c := l.Context(ctx); <-x.Done(); c() })
							u.Go(func() { _ = l.Value(); _ = l.Deadline(); _ = l.Grant(); l.Progress(); _ = l.Err() })
							u.Go(func() { time.Sleep(time.Duration(rand.Intn(30)) * time.Millisecond); _ = l.Release(ctx) })
							u.Wait()
						})
					}
				}
				time.Sleep(time.Duration(rand.Intn(30)) * time.Millisecond)
				in.Go(func() { _ = sub.Close(context.Background()) })
				_ = root.Close(context.Background())
				in.Wait()
			}
		})
	}
	wg.Wait()
}
