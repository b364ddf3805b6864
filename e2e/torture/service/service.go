//go:build unix

// Package service has one adapter for each store that a campaign can torture: how its engine is started, how a worker opens it,
// and what its requests and refusals look like.
package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// Opened is a store and a guard of the same service.
type Opened struct {
	Store lease.Store
	Guard fence.Guard
	Close func() // ends idle connections
}

// Engine is a running engine.
type Engine struct {
	URL string
	// Kill ends it at once.
	Kill func() error
}

// Service is one store.
type Service interface {
	proxy.Service

	// Name is what STORE= calls it.
	Name() string
	// TTL is that of the leases under torture.
	TTL() time.Duration
	// Bound is how long after its holder's last good renewal a dead lock is free, at the latest.
	Bound() time.Duration
	// Start starts an engine that keeps its state in dir, if it can, on port (0: a free one).
	Start(ctx context.Context, dir string, port int) (*Engine, error)
	// Durable tells whether an engine that was killed has all acknowledged writes when it is started again.
	Durable() bool
	// Anew tells whether leases begin anew when an engine is started again, as if they had been renewed then.
	Anew() bool
	// Prepare makes what the store and the guard need.
	Prepare(ctx context.Context, url string) error
	// Open opens the store for one worker. It makes no request.
	Open(url string, clock lease.Clock) (Opened, error)
	// Kinds are the proxy's faults that the service's clients have to cope with.
	Kinds() []proxy.Kind
	// SecretKinds are the kinds of secrets that every campaign sees on the wire, or that its workers are started with.
	SecretKinds() []string
	// Credentials are the secrets that workers are started with and never show.
	Credentials() []string
	// Leftovers are what the service still holds of clients that have all ended.
	Leftovers(ctx context.Context, url string) ([]string, error)
}

var all = []Service{DynamoDB{}, AzureBlob{}, Consul{}}

// Find is the service of that name.
func Find(name string) (Service, error) {
	i := slices.IndexFunc(all, func(s Service) bool { return s.Name() == name })
	if i < 0 {
		var names []string
		for _, s := range all {
			names = append(names, s.Name())
		}
		return nil, fmt.Errorf("unknown store %q: use one of %s", name, strings.Join(names, ", "))
	}
	return all[i], nil
}

// network are the faults of any network and service.
func network() []proxy.Kind {
	return []proxy.Kind{
		proxy.DelayBefore, proxy.DelayAfter, proxy.DropAnswer, proxy.Fail, proxy.Throttle, proxy.BlackHole, proxy.Reset,
		proxy.Partition, proxy.Duplicate,
	}
}

// locked names the locks that are not free, and their number.
func locked(ctx context.Context, s lease.Store) ([]string, error) {
	l, ok := s.(lease.Lister)
	if !ok {
		return nil, fmt.Errorf("%s lists no locks", s.Limits().Store)
	}
	var left []string
	for info, err := range l.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if info.State != lease.Free && info.State != lease.Absent {
			left = append(left, fmt.Sprintf("lock %q is %s by %s", info.Name, info.State, info.Holder))
		}
	}
	return left, nil
}
