package bloblease_test

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/internal/live"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// TestStore runs the specification in virtual time, against the wire: on the service as it is documented, in both of the orders
// in which it may look at leases and conditions, and on one that does as Azurite does.
func TestStore(t *testing.T) {
	for name, tc := range map[string]struct {
		opt    bloblease.Options
		rounds int
		engine func(*blobfake.Service)
	}{
		"page blobs":   {rounds: 20},
		"metadata":     {opt: bloblease.Options{MetadataTokens: true}, rounds: 20},
		"leases first": {rounds: 3, engine: func(s *blobfake.Service) { s.LeaseFirst = true }},
		"as Azurite":   {rounds: 3, engine: func(s *blobfake.Service) { s.Azurite = true }},
	} {
		t.Run(name, func(t *testing.T) {
			leasetest.TestStore(t, leasetest.Harness{
				Virtual: true, TTL: bloblease.MinTTL, PerSecond: 8, Rounds: tc.rounds, New: func(t *testing.T) leasetest.Backend {
					t.Helper()
					return newVirtual(t, tc.opt, tc.engine)
				},
			})
		})
	}
}

// TestStoreWithoutHolder: refusals name nobody.
func TestStoreWithoutHolder(t *testing.T) {
	leasetest.TestStore(t, leasetest.Harness{
		Virtual: true, TTL: bloblease.MinTTL, PerSecond: 8, Anonymous: true, Rounds: 10, New: func(t *testing.T) leasetest.Backend {
			t.Helper()
			return newVirtual(t, bloblease.Options{NoHolder: true}, nil)
		},
	})
}

// TestGuard runs the guards' specification in virtual time.
func TestGuard(t *testing.T) {
	for name, o := range guards {
		t.Run(name, func(t *testing.T) {
			leasetest.TestGuard(t, leasetest.GuardHarness{Virtual: true, New: func(t *testing.T) leasetest.Guarded {
				t.Helper()
				b := newVirtual(t, bloblease.Options{}, nil)
				b.guard = o
				return b
			}})
		})
	}
}

var guards = map[string]bloblease.GuardOptions{"metadata": {}, "tags": {Tags: true}}

// realTTL is a little more than the service's least, because one Azurite serves all subtests at once.
const realTTL = 18 * time.Second

// TestEngines runs the specifications in real time on Azurite.
func TestEngines(t *testing.T) {
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return
	}
	inRealTime(t, realTTL, 0, newReal)
}

// TestLive runs the specifications on Azure itself, if it is asked for: see internal/live. Azure may take a minute more to end a
// lease than the lease lasts.
func TestLive(t *testing.T) {
	if !live.Wanted(live.AzBlob) {
		return
	}
	containers, err := live.OpenContainers()
	require.NoError(t, err)
	inRealTime(t, 30*time.Second, time.Minute, func(t *testing.T, o bloblease.Options) *backend {
		t.Helper()
		return newLive(t, containers, o)
	})
}

func inRealTime(t *testing.T, ttl, slack time.Duration, service func(*testing.T, bloblease.Options) *backend) {
	t.Helper()
	for name, o := range map[string]bloblease.Options{"page blobs": {}, "metadata": {MetadataTokens: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leasetest.TestStore(t, leasetest.Harness{
				TTL: ttl, Slack: slack, PerSecond: 8, Rounds: 1, New: func(t *testing.T) leasetest.Backend {
					t.Helper()
					return service(t, o)
				},
			})
		})
	}
	for name, o := range guards {
		t.Run("guard by "+name, func(t *testing.T) {
			t.Parallel()
			leasetest.TestGuard(t, leasetest.GuardHarness{New: func(t *testing.T) leasetest.Guarded {
				t.Helper()
				b := service(t, bloblease.Options{})
				b.guard = o
				return b
			}})
		})
	}
}

// backend is a container on some engine.
type backend struct {
	opt    bloblease.Options
	guard  bloblease.GuardOptions
	client func(t *testing.T, wire http.RoundTripper) *container.Client
	wire   func() http.RoundTripper
	remove func(t *testing.T, blob string)
}

func newVirtual(t *testing.T, o bloblease.Options, engine func(*blobfake.Service)) *backend {
	t.Helper()
	s := newService()
	s.PageSize = 7
	if engine != nil {
		engine(s.Service)
	}
	return &backend{
		opt: o, client: fakeClient, wire: func() http.RoundTripper { return emulator.Transport(s.Service, s.now) },
		remove: func(t *testing.T, blob string) {
			t.Helper()
			require.True(t, s.Delete(locks, blob))
		},
	}
}

// newReal makes a container of its own for one subtest.
func newReal(t *testing.T, o bloblease.Options) *backend {
	t.Helper()
	// Azurite closes connections that were idle for 5 s, and a request may cross that.
	transport := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 2 * time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	url := azureContainer(t, transport).URL()
	return realBackend(o, transport, func(t *testing.T, wire http.RoundTripper) *container.Client {
		t.Helper()
		return azureSDK(t, url, wire)
	})
}

// newLive makes a container of its own for one subtest, and removes it with it.
func newLive(t *testing.T, containers *live.Containers, o bloblease.Options) *backend {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 2 * time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	name := containers.Name()
	require.NoError(t, containers.Create(t.Context(), name))
	t.Cleanup(func() { assert.NoError(t, containers.Delete(context.Background(), name)) })
	return realBackend(o, transport, func(t *testing.T, wire http.RoundTripper) *container.Client {
		t.Helper()
		c, err := containers.Client(name, wire)
		require.NoError(t, err)
		return c
	})
}

func realBackend(o bloblease.Options, wire http.RoundTripper, client func(*testing.T, http.RoundTripper) *container.Client) *backend {
	return &backend{
		opt: o, client: client, wire: func() http.RoundTripper { return wire },
		remove: func(t *testing.T, blob string) {
			t.Helper()
			client := client(t, wire).NewBlobClient(blob)
			l, err := azlease.NewBlobClient(client, nil)
			require.NoError(t, err)
			_, err = l.BreakLease(t.Context(), &azlease.BlobBreakOptions{BreakPeriod: new(int32(0))})
			if err != nil {
				require.True(t, bloberror.HasCode(err, bloberror.LeaseNotPresentWithLeaseOperation), "%v", err)
			}
			_, err = client.Delete(t.Context(), nil)
			require.NoError(t, err)
		},
	}
}

func fakeClient(t *testing.T, wire http.RoundTripper) *container.Client {
	t.Helper()
	return sdkAt(t, fakeURL, wire)
}

func (b *backend) Store(t *testing.T, h leasetest.Host) lease.Store {
	t.Helper()
	o := b.opt
	o.Clock = h.Clock
	st, err := bloblease.New(b.sdk(t, h.Faults.RoundTripper(b.wire(), refusal)), &o)
	require.NoError(t, err)
	return st
}

// Guard implements leasetest.Guarded.
func (b *backend) Guard(t *testing.T, h leasetest.Host) fence.Guard {
	t.Helper()
	g, err := bloblease.NewGuard(b.sdk(t, h.Faults.RoundTripper(b.wire(), refusal)), &b.guard)
	require.NoError(t, err)
	return g
}

func (b *backend) sdk(t *testing.T, wire http.RoundTripper) *container.Client {
	t.Helper()
	return b.client(t, wire)
}

func (b *backend) Delete(t *testing.T, name string) {
	t.Helper()
	require.NotContains(t, name, "/", "names that the suite deletes need no escape")
	b.remove(t, "cloudlease/locks/"+name)
}

// refusal is how the service answers a failure. There are two kinds of 503: the throttled one has done nothing.
func refusal(r *http.Request, f leasetest.Failure) *http.Response {
	switch f {
	case leasetest.Throttled:
		return answer(r, http.StatusServiceUnavailable, "ServerBusy")
	case leasetest.Internal:
		return answer(r, http.StatusInternalServerError, "OperationTimedOut")
	case leasetest.Denied:
		return answer(r, http.StatusForbidden, "AuthorizationPermissionMismatch")
	case leasetest.Unavailable:
	}
	return answer(r, http.StatusServiceUnavailable, "")
}
