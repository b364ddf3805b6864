package drive

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// stores are this project's stores, each client with one of its own.
type stores struct {
	Settings
	open func() (lease.Store, error)
}

// cloudOnDynamoDB is this project on DynamoDB, as its documentation sets it up.
func cloudOnDynamoDB(s Settings) (Library, error) {
	db := emulator.Client(s.URL, nil)
	return &stores{s, func() (lease.Store, error) { return dynamolock.New(db, s.Table, nil) }}, nil
}

func cloudOnAzure(s Settings) (Library, error) {
	c, err := blobContainer(s)
	if err != nil {
		return nil, err
	}
	return &stores{s, func() (lease.Store, error) { return bloblease.New(c, nil) }}, nil
}

func blobContainer(s Settings) (*container.Client, error) {
	return container.NewClientFromConnectionString(emulator.AzuriteConnection(s.URL), s.Table, nil)
}

func cloudOnConsul(s Settings) (Library, error) {
	return &stores{s, func() (lease.Store, error) {
		return consullock.New(consulConfig(s), &consullock.Options{Prefix: s.Table + "/", MinTTL: time.Second})
	}}, nil
}

// consulConfig is a configuration with connections enough for a thousand standing queries.
func consulConfig(s Settings) *api.Config {
	return &api.Config{
		Address: strings.TrimPrefix(s.URL, "http://"), HttpClient: &http.Client{Transport: &http.Transport{MaxIdleConns: 512, MaxIdleConnsPerHost: 512}},
	}
}

// Open makes a client with a store of its own, so that it knows no more than a fresh process.
func (s *stores) Open(context.Context) (Client, error) {
	store, err := s.open()
	if err != nil {
		return nil, err
	}
	c, err := lease.New(store, &lease.Options{TTL: s.TTL, Observer: lease.ObserverFunc(func(lease.Event) {})})
	if err != nil {
		return nil, err
	}
	return &cloud{c: c}, nil
}

type cloud struct {
	c    *lease.Client
	held held[*lease.Lease]
}

func (c *cloud) keep(l *lease.Lease, err error) error {
	if errors.Is(err, lease.ErrHeld) {
		return ErrHeld
	}
	if err == nil {
		c.held.put(l.Name(), l)
	}
	return err
}

func (c *cloud) Acquire(ctx context.Context, lock string) error {
	return c.keep(c.c.Acquire(ctx, lock))
}

func (c *cloud) Try(ctx context.Context, lock string) error {
	return c.keep(c.c.TryAcquire(ctx, lock))
}

// Renew sends what a heartbeat sends.
func (c *cloud) Renew(ctx context.Context, lock string) error {
	l, err := c.held.get(lock)
	if err != nil {
		return err
	}
	_, err = c.c.Store().Renew(ctx, l.Grant())
	return err
}

func (c *cloud) Release(ctx context.Context, lock string) error {
	l, err := c.held.take(lock)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

func (c *cloud) Deliver(ctx context.Context, job string, occurrence time.Time) error {
	j, err := singleton.New(c.c, job, nil)
	if err != nil {
		return err
	}
	res, err := j.Run(ctx, occurrence, func(context.Context, *lease.Lease) error { return nil })
	if err == nil && res.Outcome != singleton.Ran {
		return ErrHeld
	}
	return err
}
