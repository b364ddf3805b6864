package singleton_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

// backend is a lock service to run the cases on.
type backend struct {
	name   string
	minTTL time.Duration // cases with a shorter TTL use this one
	slack  time.Duration // how much later than by its TTL a dead lease is free on this service
	// open makes a new service in virtual time and returns what connects a host with it.
	open func(t *testing.T) func(lease.Clock) lease.Store
}

var backends = []backend{
	{name: "memory", open: func(*testing.T) func(lease.Clock) lease.Store {
		s := memlease.NewService()
		return func(c lease.Clock) lease.Store { return s.Store(&memlease.Options{Clock: c}) }
	}},
	{name: "dynamodb", minTTL: dynamolock.MinTTL, slack: 3 * time.Second, open: func(t *testing.T) func(lease.Clock) lease.Store {
		const table = "locks"
		sdk := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
		_, err := sdk.CreateTable(t.Context(), dynamolock.CreateTableInput(table))
		require.NoError(t, err)
		return func(c lease.Clock) lease.Store {
			s, err := dynamolock.New(sdk, table, &dynamolock.Options{Clock: c})
			require.NoError(t, err)
			return s
		}
	}},
}

// onEveryStore runs a case on every backend, each in a bubble of its own.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, backend: b, connect: b.open(t), journal: &journal{}}
				test(t, w)
				w.close()
				w.journal.check(t)
			})
		})
	}
}
