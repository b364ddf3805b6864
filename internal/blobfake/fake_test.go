package blobfake_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEngines checks what leases need of the service, on the fake and on Azurite, so that both are known to do the same.
func TestEngines(t *testing.T) {
	engines := map[string]func(t *testing.T) *container.Client{"fake": func(t *testing.T) *container.Client {
		t.Helper()
		return client(t, "http://blob.invalid/devstoreaccount1/c", emulator.Transport(blobfake.New(), nil))
	}}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		e, err := emulator.StartAzurite(t.Context(), emulator.AzuriteOptions{})
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close()) }()
		wire := &http.Transport{MaxIdleConnsPerHost: 128}
		defer wire.CloseIdleConnections()
		n := 0
		engines["azurite"] = func(t *testing.T) *container.Client {
			t.Helper()
			n++
			return client(t, fmt.Sprint(e.URL, "/container", n), wire)
		}
	}
	for engine, open := range engines {
		for name, check := range map[string]func(*testing.T, *container.Client){
			"leases": leases, "conditions": conditions, "breaks": breaks, "numbers": numbers, "pages": pages, "tags": tags,
			"listings": listings, "missing": absences, "one winner": oneWinner,
		} {
			t.Run(engine+"/"+name, func(t *testing.T) {
				c := open(t)
				_, err := c.Create(t.Context(), nil)
				require.NoError(t, err)
				check(t, c)
			})
		}
	}
}

func client(t *testing.T, url string, wire http.RoundTripper) *container.Client {
	t.Helper()
	key, err := container.NewSharedKeyCredential(emulator.AzuriteAccount, emulator.AzuriteKey)
	require.NoError(t, err)
	c, err := container.NewClientWithSharedKeyCredential(url, key, &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: wire}, Retry: policy.RetryOptions{MaxRetries: -1},
	}})
	require.NoError(t, err)
	return c
}

func requireCode(t *testing.T, err error, codes ...bloberror.Code) {
	t.Helper()
	require.True(t, bloberror.HasCode(err, codes...), "%v", err)
}

func page(t *testing.T, c *container.Client, name string) *pageblob.Client {
	t.Helper()
	b := c.NewPageBlobClient(name)
	_, err := b.Create(t.Context(), pageblob.PageBytes, nil)
	require.NoError(t, err)
	return b
}

// leaseOf is the lease of a blob under an id that ends in n.
func leaseOf(t *testing.T, b *pageblob.Client, n int) *azlease.BlobClient {
	t.Helper()
	l, err := azlease.NewBlobClient(b, &azlease.BlobClientOptions{LeaseID: new(fmt.Sprintf("00000000-0000-0000-0000-%012d", n))})
	require.NoError(t, err)
	return l
}

func match(etag *azcore.ETag) *blob.AccessConditions {
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: etag}}
}

func underLease(id *string) *blob.AccessConditions {
	return &blob.AccessConditions{LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: id}}
}

func note(ctx context.Context, b *pageblob.Client, text string, c *blob.AccessConditions) (*azcore.ETag, error) {
	resp, err := b.SetMetadata(ctx, map[string]*string{"note": &text}, &blob.SetMetadataOptions{AccessConditions: c})
	return resp.ETag, err
}

func number(ctx context.Context, b *pageblob.Client, n int64, c *blob.AccessConditions) (pageblob.UpdateSequenceNumberResponse, error) {
	return b.UpdateSequenceNumber(ctx, &pageblob.UpdateSequenceNumberOptions{
		ActionType: new(pageblob.SequenceNumberActionTypeUpdate), SequenceNumber: &n, AccessConditions: c,
	})
}

func leases(t *testing.T, c *container.Client) {
	ctx := t.Context()
	b := page(t, c, "b")
	mine, other := leaseOf(t, b, 1), leaseOf(t, b, 2)
	for _, seconds := range []int32{0, 5, 14, 61, 300} {
		_, err := mine.AcquireLease(ctx, seconds, nil)
		requireCode(t, err, bloberror.InvalidHeaderValue)
	}
	got, err := mine.AcquireLease(ctx, 15, nil)
	require.NoError(t, err)
	require.Equal(t, *mine.LeaseID(), *got.LeaseID)
	_, err = mine.AcquireLease(ctx, 15, nil)
	require.NoError(t, err, "the same id again")
	_, err = other.AcquireLease(ctx, 15, nil)
	requireCode(t, err, bloberror.LeaseAlreadyPresent)
	for _, try := range []func() error{
		func() error { _, err := other.RenewLease(ctx, nil); return err },
		func() error { _, err := other.ReleaseLease(ctx, nil); return err },
	} {
		requireCode(t, try(), bloberror.LeaseIDMismatchWithLeaseOperation)
	}
	renewed, err := mine.RenewLease(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, *mine.LeaseID(), *renewed.LeaseID)

	_, err = note(ctx, b, "x", nil)
	requireCode(t, err, bloberror.LeaseIDMissing)
	_, err = number(ctx, b, 7, nil)
	requireCode(t, err, bloberror.LeaseIDMissing)
	_, err = note(ctx, b, "x", underLease(other.LeaseID()))
	requireCode(t, err, bloberror.LeaseIDMismatchWithBlobOperation)
	_, err = note(ctx, b, "x", underLease(mine.LeaseID()))
	require.NoError(t, err)
	seen, err := b.GetProperties(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, azlease.StateTypeLeased, *seen.LeaseState)
	require.Equal(t, azlease.DurationTypeFixed, *seen.LeaseDuration)

	_, err = mine.ReleaseLease(ctx, nil)
	require.NoError(t, err)
	_, err = mine.ReleaseLease(ctx, nil)
	requireCode(t, err, bloberror.LeaseIDMismatchWithLeaseOperation)
	_, err = mine.RenewLease(ctx, nil)
	requireCode(t, err, bloberror.LeaseIDMismatchWithLeaseOperation)
	_, err = note(ctx, b, "x", underLease(mine.LeaseID()))
	requireCode(t, err, bloberror.LeaseNotPresentWithBlobOperation)
}

// conditions: every write makes a new version, and no operation on a lease does.
func conditions(t *testing.T, c *container.Client) {
	ctx := t.Context()
	b := page(t, c, "b")
	seen, err := b.GetProperties(ctx, nil)
	require.NoError(t, err)
	first := seen.ETag
	l := leaseOf(t, b, 1)
	got, err := l.AcquireLease(ctx, 15, &azlease.BlobAcquireOptions{ModifiedAccessConditions: match(first).ModifiedAccessConditions})
	require.NoError(t, err)
	require.Equal(t, *first, *got.ETag)
	renewed, err := l.RenewLease(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, *first, *renewed.ETag)
	released, err := l.ReleaseLease(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, *first, *released.ETag)

	second, err := note(ctx, b, "x", match(first))
	require.NoError(t, err)
	require.NotEqual(t, *first, *second)
	third, err := number(ctx, b, 7, match(second))
	require.NoError(t, err)
	require.NotEqual(t, *second, *third.ETag)
	for _, stale := range []*azcore.ETag{first, second} {
		_, err = note(ctx, b, "x", match(stale))
		requireCode(t, err, bloberror.ConditionNotMet)
		_, err = number(ctx, b, 8, match(stale))
		requireCode(t, err, bloberror.ConditionNotMet)
		_, err = l.AcquireLease(ctx, 15, &azlease.BlobAcquireOptions{ModifiedAccessConditions: match(stale).ModifiedAccessConditions})
		requireCode(t, err, bloberror.ConditionNotMet)
		_, err = l.BreakLease(ctx, &azlease.BlobBreakOptions{ModifiedAccessConditions: match(stale).ModifiedAccessConditions})
		requireCode(t, err, bloberror.ConditionNotMet)
	}
	_, err = b.Create(ctx, pageblob.PageBytes, &pageblob.CreateOptions{AccessConditions: &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)},
	}})
	requireCode(t, err, bloberror.BlobAlreadyExists)
}

func breaks(t *testing.T, c *container.Client) {
	ctx := t.Context()
	b := page(t, c, "b")
	l, next := leaseOf(t, b, 1), leaseOf(t, b, 2)
	_, err := l.BreakLease(ctx, nil)
	requireCode(t, err, bloberror.LeaseNotPresentWithLeaseOperation)
	_, err = l.AcquireLease(ctx, 60, nil)
	require.NoError(t, err)
	left, err := l.BreakLease(ctx, &azlease.BlobBreakOptions{BreakPeriod: new(int32(30))})
	require.NoError(t, err)
	require.InDelta(t, 30, *left.LeaseTime, 1)
	_, err = l.RenewLease(ctx, nil)
	requireCode(t, err, bloberror.LeaseIsBrokenAndCannotBeRenewed)
	_, err = next.AcquireLease(ctx, 15, nil)
	requireCode(t, err, bloberror.LeaseAlreadyPresent)
	_, err = l.AcquireLease(ctx, 15, nil)
	requireCode(t, err, bloberror.LeaseIsBreakingAndCannotBeAcquired)
	_, err = note(ctx, b, "x", nil)
	requireCode(t, err, bloberror.LeaseIDMissing)
	left, err = l.BreakLease(ctx, &azlease.BlobBreakOptions{BreakPeriod: new(int32(0))})
	require.NoError(t, err)
	require.Zero(t, *left.LeaseTime)
	seen, err := b.GetProperties(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, azlease.StateTypeBroken, *seen.LeaseState)
	_, err = next.AcquireLease(ctx, -1, nil)
	require.NoError(t, err, "without an end")
	left, err = next.BreakLease(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, *left.LeaseTime, "which a break ends at once")
}

func numbers(t *testing.T, c *container.Client) {
	ctx := t.Context()
	b := c.NewPageBlobClient("b")
	_, err := b.Create(ctx, pageblob.PageBytes, &pageblob.CreateOptions{SequenceNumber: new(int64(1700000000123)), Metadata: map[string]*string{"k": new("v")}})
	require.NoError(t, err)
	seen, err := b.GetProperties(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, int64(1700000000123), *seen.BlobSequenceNumber)
	for _, n := range []int64{1700000000124, 1<<53 - 2, 1<<53 - 1} {
		set, err := number(ctx, b, n, nil)
		require.NoError(t, err)
		require.Equal(t, n, *set.BlobSequenceNumber)
	}
	set, err := b.UpdateSequenceNumber(ctx, &pageblob.UpdateSequenceNumberOptions{ActionType: new(pageblob.SequenceNumberActionTypeMax), SequenceNumber: new(int64(7))})
	require.NoError(t, err)
	require.Equal(t, int64(1<<53-1), *set.BlobSequenceNumber)
	_, err = number(ctx, b, 7, nil)
	require.NoError(t, err)
	set, err = b.UpdateSequenceNumber(ctx, &pageblob.UpdateSequenceNumberOptions{ActionType: new(pageblob.SequenceNumberActionTypeIncrement)})
	require.NoError(t, err)
	require.Equal(t, int64(8), *set.BlobSequenceNumber)
	_, err = note(ctx, b, "x", nil)
	require.NoError(t, err)
	seen, err = b.GetProperties(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, int64(8), *seen.BlobSequenceNumber, "metadata leave it alone")
	require.Len(t, seen.Metadata, 1, "and replace each other")
}

func pages(t *testing.T, c *container.Client) {
	ctx := t.Context()
	b := page(t, c, "b")
	_, err := number(ctx, b, 7, nil)
	require.NoError(t, err)
	put := func(atMost int64) error {
		content := bytes.Repeat([]byte{byte(atMost)}, pageblob.PageBytes)
		_, err := b.UploadPages(ctx, streaming.NopCloser(bytes.NewReader(content)), blob.HTTPRange{Count: pageblob.PageBytes}, &pageblob.UploadPagesOptions{
			SequenceNumberAccessConditions: &pageblob.SequenceNumberAccessConditions{IfSequenceNumberLessThanOrEqualTo: &atMost},
		})
		return err
	}
	require.NoError(t, put(7))
	require.NoError(t, put(8))
	requireCode(t, put(6), bloberror.SequenceNumberConditionNotMet)
	got, err := b.DownloadStream(ctx, nil)
	require.NoError(t, err)
	first := make([]byte, 1)
	_, err = got.Body.Read(first)
	require.NoError(t, err)
	require.NoError(t, got.Body.Close())
	require.Equal(t, byte(8), first[0])
}
