package bloblease_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// canned is a service that knows its answers by heart: everything is done, on a blob that nobody has leased.
type canned struct {
	kind string // of its blobs
	etag atomic.Int64
}

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Etag"] = []string{`"0x` + strconv.FormatInt(c.etag.Add(1), 16) + `"`}
	h["X-Ms-Request-Id"] = []string{"1f2e3d4c-5b6a-4789-90ab-cdef01234567"}
	status, proposed := http.StatusOK, r.Header["x-ms-proposed-lease-id"] //nolint:staticcheck // the SDK writes them so
	switch {
	case proposed != nil:
		h["X-Ms-Lease-Id"], status = proposed, http.StatusCreated
	case r.Header["x-ms-lease-id"] != nil: //nolint:staticcheck // the same
		h["X-Ms-Lease-Id"] = r.Header["x-ms-lease-id"]
	case r.Method == http.MethodHead:
		h["X-Ms-Blob-Type"], h["X-Ms-Blob-Sequence-Number"] = []string{c.kind}, []string{"7"}
		h["X-Ms-Lease-State"], h["X-Ms-Meta-Token"] = []string{"available"}, []string{"7"}
	}
	w.WriteHeader(status)
}

func cannedSDK(t testing.TB, kind string, wrap func(http.RoundTripper) http.RoundTripper) *container.Client {
	t.Helper()
	wire := emulator.Transport(&canned{kind: kind}, nil)
	if wrap != nil {
		wire = wrap(wire)
	}
	return sdkAt(t, fakeURL, wire)
}

// bare is the SDK alone: the same requests as the store's, with the same headers.
type bare struct {
	page  *pageblob.Client
	lease *azlease.BlobClient
	seen  blob.ModifiedAccessConditions
	n     int64
}

func newBare(t testing.TB, c *container.Client) *bare {
	t.Helper()
	x := &bare{page: c.NewPageBlobClient("cloudlease/locks/x"), n: 1 << 40}
	var err error
	x.lease, err = azlease.NewBlobClient(x.page, nil)
	require.NoError(t, err)
	got, err := x.page.GetProperties(t.Context(), nil)
	require.NoError(t, err)
	x.seen.IfMatch = got.ETag
	return x
}

func (x *bare) number(ctx context.Context) error {
	x.n++
	resp, err := x.page.UpdateSequenceNumber(ctx, &pageblob.UpdateSequenceNumberOptions{
		ActionType: new(pageblob.SequenceNumberActionTypeUpdate), SequenceNumber: &x.n,
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &x.seen},
	})
	x.seen.IfMatch = resp.ETag
	return err
}

func (x *bare) note(ctx context.Context) error {
	token, since := strconv.FormatInt(x.n, 10), strconv.FormatInt(time.Now().UnixMilli(), 10)
	resp, err := x.page.SetMetadata(ctx, map[string]*string{"token": &token, "since": &since, "holder": new("bWU")},
		&blob.SetMetadataOptions{AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &x.seen}})
	x.seen.IfMatch = resp.ETag
	return err
}

func (x *bare) acquire(ctx context.Context) error {
	resp, err := x.lease.AcquireLease(ctx, 30, &azlease.BlobAcquireOptions{ModifiedAccessConditions: &x.seen})
	x.seen.IfMatch = resp.ETag
	return err
}

func (x *bare) release(ctx context.Context) error {
	_, err := x.lease.ReleaseLease(ctx, nil)
	return err
}

// modes are the ways to keep a lock, and what each sends for a grant and its release.
var modes = []struct {
	name string
	opt  bloblease.Options
	kind string
	do   func(*bare) func(context.Context) error
}{
	{"page", bloblease.Options{}, "PageBlob", func(x *bare) func(context.Context) error {
		return steps(x.number, x.note, x.acquire, x.release)
	}},
	{"noholder", bloblease.Options{NoHolder: true}, "PageBlob", func(x *bare) func(context.Context) error {
		return steps(x.number, x.acquire, x.release)
	}},
	{"metadata", bloblease.Options{MetadataTokens: true}, "BlockBlob", func(x *bare) func(context.Context) error {
		return steps(x.note, x.acquire, x.release)
	}},
}

func grantAndRelease(st *bloblease.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		g, err := st.TryAcquire(ctx, compared())
		if err != nil {
			return err
		}
		return st.Release(ctx, g, lease.Final{})
	}
}

// BenchmarkAcquireRelease beside the SDK, with the same requests and with the least that locks.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, mode := range modes {
		b.Run(mode.name, func(b *testing.B) {
			sdk := cannedSDK(b, mode.kind, nil)
			raw := newBare(b, sdk)
			st, err := bloblease.New(sdk, &mode.opt)
			require.NoError(b, err)
			c, err := lease.New(st, &lease.Options{Holder: "me", Observer: lease.ObserverFunc(func(lease.Event) {})})
			require.NoError(b, err)
			leasetest.Compare(b,
				leasetest.Way{Name: "least", Do: steps(raw.acquire, raw.release)},
				leasetest.Way{Name: "bare", Do: mode.do(raw)},
				leasetest.Way{Name: "store", Do: grantAndRelease(st)},
				leasetest.Way{Name: "client", Do: func(ctx context.Context) error {
					l, err := c.TryAcquire(ctx, "x")
					if err != nil {
						return err
					}
					return l.Release(ctx)
				}},
			)
			require.NoError(b, c.Close(context.Background()))
		})
	}
}

// TestComparedAlike: what is compared sends the same requests with the same headers, but for their values.
func TestComparedAlike(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			var sent []string
			sdk := cannedSDK(t, mode.kind, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					sent = append(sent, fmt.Sprintln(r.Method, r.URL, slices.Sorted(maps.Keys(r.Header))))
					return next.RoundTrip(r)
				})
			})
			raw := newBare(t, sdk)
			st, err := bloblease.New(sdk, &mode.opt)
			require.NoError(t, err)
			require.NoError(t, grantAndRelease(st)(t.Context())) // looks first
			sent = nil
			require.NoError(t, grantAndRelease(st)(t.Context()))
			store := sent
			sent = nil
			require.NoError(t, mode.do(raw)(t.Context()))
			require.Equal(t, store, sent)
		})
	}
}

func steps(all ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, step := range all {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

func compared() lease.Request {
	return lease.Request{Name: "x", Holder: "me", TTL: 30 * time.Second, Attempt: "attempt-id", Since: lease.SystemClock()}
}

// BenchmarkRenew is a renewal through the store, and with the SDK alone.
func BenchmarkRenew(b *testing.B) {
	sdk := cannedSDK(b, "PageBlob", nil)
	raw := newBare(b, sdk)
	st, err := bloblease.New(sdk, nil)
	require.NoError(b, err)
	g, err := st.TryAcquire(b.Context(), compared())
	require.NoError(b, err)
	leasetest.Compare(b,
		leasetest.Way{Name: "bare", Do: func(ctx context.Context) error { _, err := raw.lease.RenewLease(ctx, nil); return err }},
		leasetest.Way{Name: "store", Do: func(ctx context.Context) error { g, err = st.Renew(ctx, g); return err }},
	)
}
