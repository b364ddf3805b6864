package bloblease_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// TestSimulation tries the store by chance, with both places for the token, and on a service that does as Azurite does. The front
// ends that hosts talk to differ by up to a second, and some failures are a gateway's whose clock is wrong.
func TestSimulation(t *testing.T) {
	for name, tc := range map[string]struct {
		opt    bloblease.Options
		engine func(*blobfake.Service)
	}{
		"page blobs": {},
		"metadata":   {opt: bloblease.Options{MetadataTokens: true}},
		"as Azurite": {opt: bloblease.Options{NoHolder: true}, engine: func(s *blobfake.Service) { s.Azurite = true }},
	} {
		t.Run(name, func(t *testing.T) {
			h := leasetest.Harness{Virtual: true, TTL: bloblease.MinTTL, Anonymous: tc.opt.NoHolder, New: func(t *testing.T) leasetest.Backend {
				t.Helper()
				b := &simulated{service: newService(), opt: tc.opt}
				if tc.engine != nil {
					tc.engine(b.Service)
				}
				return b
			}}
			leasetest.Simulate(t, h, leasetest.Simulation{Seeds: 3})
		})
	}
}

// simulated is an Azure Blob Storage at its worst.
type simulated struct {
	*service
	opt    bloblease.Options
	fronts atomic.Int64
	ahead  atomic.Int64 // of the service's clock
}

func (b *simulated) client(t *testing.T, h leasetest.Host) *container.Client {
	t.Helper()
	front := b.fronts.Add(1)
	skew := time.Duration(front%3) * time.Second / 2
	wire := emulator.Transport(b.Service, func() time.Time { return time.Now().Add(skew + time.Duration(b.ahead.Load())) })
	return sdkAt(t, fakeURL, h.Faults.RoundTripper(wire, gateway))
}

// gateway answers failures, some as one that is not Azure.
func gateway(r *http.Request, f leasetest.Failure) *http.Response {
	resp := refusal(r, f)
	if f == leasetest.Unavailable {
		resp.Header.Del("X-Ms-Request-Id")
		resp.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
	}
	return resp
}

// Store implements leasetest.Backend.
func (b *simulated) Store(t *testing.T, h leasetest.Host) lease.Store {
	t.Helper()
	o := b.opt
	o.Clock = h.Clock
	st, err := bloblease.New(b.client(t, h), &o)
	require.NoError(t, err)
	return st
}

// Guard implements leasetest.Guarded.
func (b *simulated) Guard(t *testing.T, h leasetest.Host) fence.Guard {
	t.Helper()
	g, err := bloblease.NewGuard(b.client(t, h), nil)
	require.NoError(t, err)
	return g
}

// Delete implements leasetest.Backend.
func (b *simulated) Delete(t *testing.T, name string) {
	t.Helper()
	require.True(t, b.Service.Delete(locks, "cloudlease/locks/"+name))
}

// Copy implements leasetest.Restorer, with the whole container, as a failover does.
func (b *simulated) Copy(t *testing.T, _ string) func() {
	t.Helper()
	snap := b.Snapshot(locks)
	return func() { b.Restore(locks, snap) }
}

// SetTime implements leasetest.Timed.
func (b *simulated) SetTime(d time.Duration) { b.ahead.Store(int64(d)) }

// Write implements leasetest.Checked, by the lock's own blob. The content of one that is no page blob cannot be fenced.
func (b *simulated) Write(_ leasetest.Host, s lease.Store) (func(context.Context, *lease.Lease) (bool, error), bool) {
	st := s.(*bloblease.Store)
	return func(ctx context.Context, l *lease.Lease) (bool, error) {
		n, err := st.Native(l)
		if err != nil {
			return false, nil //nolint:nilerr // it has none
		}
		page := bytes.NewReader(make([]byte, pageblob.PageBytes))
		_, err = n.Blob().UploadPages(ctx, streaming.NopCloser(page), blob.HTTPRange{Count: pageblob.PageBytes}, n.Options())
		if err = n.Refused(err); errors.Is(err, lease.ErrStale) {
			return false, nil
		}
		return err == nil, err
	}, false
}
