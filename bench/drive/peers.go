package drive

import (
	"context"
	"errors"
	"time"

	peer "cirello.io/dynamolock/v2"
	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// longWait is as good as for ever: the harness ends the driver.
const longWait = time.Hour

// cirello is cirello.io/dynamolock/v2.
type cirello struct {
	Settings
	db peer.DynamoDBClient
}

func newCirello(s Settings) (Library, error) { return &cirello{s, emulator.Client(s.URL, nil)}, nil }

func (c *cirello) Open(context.Context) (Client, error) {
	p, err := peer.New(c.db, c.Table, peer.WithLeaseDuration(c.TTL), peer.WithHeartbeatPeriod(c.TTL/3))
	if err != nil {
		return nil, err
	}
	return &cirelloClient{p: p}, nil
}

type cirelloClient struct {
	p    *peer.Client
	held held[*peer.Lock]
}

func (c *cirelloClient) acquire(ctx context.Context, lock string, o ...peer.AcquireLockOption) error {
	l, err := c.p.AcquireLockWithContext(ctx, lock, o...)
	if _, refused := errors.AsType[*peer.LockNotGrantedError](err); refused {
		return ErrHeld
	}
	if err == nil {
		c.held.put(lock, l)
	}
	return err
}

func (c *cirelloClient) Acquire(ctx context.Context, lock string) error {
	return c.acquire(ctx, lock, peer.WithAdditionalTimeToWaitForLock(longWait))
}

func (c *cirelloClient) Try(ctx context.Context, lock string) error {
	return c.acquire(ctx, lock, peer.FailIfLocked())
}

func (c *cirelloClient) Renew(ctx context.Context, lock string) error {
	l, err := c.held.get(lock)
	if err != nil {
		return err
	}
	return c.p.SendHeartbeatWithContext(ctx, l)
}

func (c *cirelloClient) Release(ctx context.Context, lock string) error {
	l, err := c.held.take(lock)
	if err != nil {
		return err
	}
	_, err = c.p.ReleaseLockWithContext(ctx, l)
	return err
}

// Deliver is the lock around the job: nothing remembers that it ran.
func (c *cirelloClient) Deliver(ctx context.Context, job string, _ time.Time) error {
	if err := c.Try(ctx, job); err != nil {
		return err
	}
	return c.Release(ctx, job)
}

// consulAPI is the Lock of github.com/hashicorp/consul/api.
type consulAPI struct {
	Settings
	c *api.Client
}

func newConsulAPI(s Settings) (Library, error) {
	c, err := api.NewClient(consulConfig(s))
	return &consulAPI{s, c}, err
}

func (c *consulAPI) Open(context.Context) (Client, error) { return &consulAPIClient{consulAPI: c}, nil }

type consulAPIClient struct {
	*consulAPI
	held held[*api.Lock]
}

func (c *consulAPIClient) acquire(ctx context.Context, lock string, once bool) error {
	o := &api.LockOptions{Key: c.Table + "/" + lock, SessionTTL: c.TTL.String(), LockTryOnce: once}
	if once {
		o.LockWaitTime = time.Millisecond // 0 would be the default of 15 s
	}
	l, err := c.c.LockOpts(o)
	if err != nil {
		return err
	}
	lost, err := l.Lock(ctx.Done())
	if err != nil {
		return err
	}
	if lost == nil {
		return ErrHeld
	}
	c.held.put(lock, l)
	return nil
}

func (c *consulAPIClient) Acquire(ctx context.Context, lock string) error {
	return c.acquire(ctx, lock, false)
}

func (c *consulAPIClient) Try(ctx context.Context, lock string) error {
	return c.acquire(ctx, lock, true)
}

// Renew has no call of its own.
func (c *consulAPIClient) Renew(context.Context, string) error { return ErrUnsupported }

func (c *consulAPIClient) Release(_ context.Context, lock string) error {
	l, err := c.held.take(lock)
	if err != nil {
		return err
	}
	return l.Unlock()
}

// Deliver is the lock around the job: nothing remembers that it ran.
func (c *consulAPIClient) Deliver(ctx context.Context, job string, _ time.Time) error {
	if err := c.Try(ctx, job); err != nil {
		return err
	}
	return c.Release(ctx, job)
}
