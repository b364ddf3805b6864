package bloblease_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

// BenchmarkAcquireRelease is a grant and its release through the client, without a network.
func BenchmarkAcquireRelease(b *testing.B) {
	for name, o := range map[string]bloblease.Options{"page": {}, "noholder": {NoHolder: true}, "metadata": {MetadataTokens: true}} {
		b.Run(name, func(b *testing.B) {
			st, err := bloblease.New(newService().sdk(b, nil), &o)
			require.NoError(b, err)
			c, err := lease.New(st, &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				l, err := c.TryAcquire(b.Context(), "x")
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, c.Close(context.Background()))
		})
	}
}

// BenchmarkBareSDK is the same number of the same requests, with the same headers, by the SDK alone.
func BenchmarkBareSDK(b *testing.B) {
	ctx := context.Background()
	c := newService().sdk(b, nil)
	page := c.NewPageBlobClient("x")
	made, err := page.Create(ctx, pageblob.PageBytes, nil)
	require.NoError(b, err)
	l, err := azlease.NewBlobClient(page, nil)
	require.NoError(b, err)
	etag, n := made.ETag, int64(1<<40)
	version := func() *blob.ModifiedAccessConditions { return &blob.ModifiedAccessConditions{IfMatch: etag} }
	number := func() error {
		n++
		resp, err := page.UpdateSequenceNumber(ctx, &pageblob.UpdateSequenceNumberOptions{
			ActionType: new(pageblob.SequenceNumberActionTypeUpdate), SequenceNumber: &n,
			AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: version()},
		})
		etag = resp.ETag
		return err
	}
	note := func() error {
		text := strconv.FormatInt(n, 10)
		resp, err := page.SetMetadata(ctx, map[string]*string{"token": &text, "since": &text, "holder": new("aG9sZGVyOmFiY2RlZg")},
			&blob.SetMetadataOptions{AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: version()}})
		etag = resp.ETag
		return err
	}
	acquire := func() error {
		_, err := l.AcquireLease(ctx, 30, &azlease.BlobAcquireOptions{ModifiedAccessConditions: version()})
		return err
	}
	release := func() error { _, err := l.ReleaseLease(ctx, nil); return err }
	for name, do := range map[string][]func() error{
		"page": {number, note, acquire, release}, "noholder": {number, acquire, release}, "metadata": {note, acquire, release},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, step := range do {
					if err := step(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkRenew is a renewal through the store, and with the SDK alone.
func BenchmarkRenew(b *testing.B) {
	s := newService()
	c := s.sdk(b, nil)
	st, err := bloblease.New(c, nil)
	require.NoError(b, err)
	g, err := st.TryAcquire(b.Context(), request("x"))
	require.NoError(b, err)
	b.Run("store", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if g, err = st.Renew(b.Context(), g); err != nil {
				b.Fatal(err)
			}
		}
	})
	l, err := azlease.NewBlobClient(c.NewBlobClient("cloudlease/locks/x"), &azlease.BlobClientOptions{LeaseID: &g.Proof})
	require.NoError(b, err)
	b.Run("sdk", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.RenewLease(b.Context(), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
