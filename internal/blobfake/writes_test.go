package blobfake_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

func tags(t *testing.T, c *container.Client) {
	ctx := t.Context()
	b := c.NewBlockBlobClient("b")
	put := func(value, where string) error {
		o := &blockblob.UploadOptions{Tags: map[string]string{"fence": value}}
		if where != "" {
			o.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfTags: &where}}
		}
		_, err := b.Upload(ctx, streaming.NopCloser(strings.NewReader(value)), o)
		return err
	}
	where := func(n, full string) string { return fmt.Sprintf(`"fence" < '%s' OR "fence" = '%s'`, n, full) }
	require.NoError(t, put("0007.a", ""))
	require.NoError(t, put("0007.a", where("0007", "0007.a")))
	requireCode(t, put("0007.b", where("0007", "0007.b")), bloberror.ConditionNotMet)
	require.NoError(t, put("0010.b", where("0010", "0010.b")))
	requireCode(t, put("0009.a", where("0009", "0009.a")), bloberror.ConditionNotMet)
	got, err := b.GetTags(ctx, nil)
	require.NoError(t, err)
	require.Len(t, got.BlobTagSet, 1)
	require.Equal(t, "0010.b", *got.BlobTagSet[0].Value)
}

func listings(t *testing.T, c *container.Client) {
	ctx := t.Context()
	for _, name := range []string{"p/a", "p/=C3=A9", "p/A", "q/a", "p"} {
		b := page(t, c, name)
		_, err := number(ctx, b, 7, nil)
		require.NoError(t, err)
		_, err = note(ctx, b, name, nil)
		require.NoError(t, err)
	}
	_, err := leaseOf(t, c.NewPageBlobClient("p/A"), 1).AcquireLease(ctx, 60, nil)
	require.NoError(t, err)
	var names []string
	pager := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
		Prefix: new("p/"), MaxResults: new(int32(2)), Include: container.ListBlobsInclude{Metadata: true},
	})
	n := 0
	for ; pager.More(); n++ {
		got, err := pager.NextPage(ctx)
		require.NoError(t, err)
		for _, item := range got.Segment.BlobItems {
			names = append(names, *item.Name)
			require.Equal(t, *item.Name, *item.Metadata["note"])
			require.Equal(t, int64(7), *item.Properties.BlobSequenceNumber)
			require.Equal(t, blob.BlobTypePageBlob, *item.Properties.BlobType)
			want := azlease.StateTypeAvailable
			if *item.Name == "p/A" {
				want = azlease.StateTypeLeased
			}
			require.Equal(t, want, *item.Properties.LeaseState)
		}
	}
	require.Equal(t, []string{"p/=C3=A9", "p/A", "p/a"}, names)
	require.Equal(t, 2, n)
}

func absences(t *testing.T, c *container.Client) {
	ctx := t.Context()
	b := c.NewPageBlobClient("missing")
	_, err := b.GetProperties(ctx, nil)
	requireCode(t, err, bloberror.BlobNotFound)
	_, err = note(ctx, b, "x", nil)
	requireCode(t, err, bloberror.BlobNotFound)
	_, err = leaseOf(t, b, 1).RenewLease(ctx, nil)
	requireCode(t, err, bloberror.BlobNotFound)
	_, err = c.Delete(ctx, nil)
	require.NoError(t, err)
	_, err = b.GetProperties(ctx, nil)
	requireCode(t, err, bloberror.ContainerNotFound)
	_, err = b.Create(ctx, pageblob.PageBytes, nil)
	requireCode(t, err, bloberror.ContainerNotFound)
}

func oneWinner(t *testing.T, c *container.Client) {
	b := page(t, c, "b")
	for round := range 3 {
		seen, err := b.GetProperties(t.Context(), nil)
		require.NoError(t, err)
		var wins atomic.Int32
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range 100 {
			wg.Go(func() {
				<-start
				if _, err := number(t.Context(), b, int64(round*1000+i), match(seen.ETag)); err == nil {
					wins.Add(1)
				} else if !bloberror.HasCode(err, bloberror.ConditionNotMet) {
					t.Errorf("%v", err)
				}
			})
		}
		close(start)
		wg.Wait()
		require.EqualValues(t, 1, wins.Load())
	}
}

// TestExpiry: a lease ends by itself, and after a write to its blob it cannot be renewed.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := client(t, "http://blob.invalid/devstoreaccount1/c", emulator.Transport(blobfake.New("c"), nil))
		b := page(t, c, "b")
		l := leaseOf(t, b, 1)
		_, err := l.AcquireLease(ctx, 15, nil)
		require.NoError(t, err)
		time.Sleep(15*time.Second - time.Millisecond)
		_, err = note(ctx, b, "x", nil)
		requireCode(t, err, bloberror.LeaseIDMissing)
		time.Sleep(time.Millisecond)
		seen, err := b.GetProperties(ctx, nil)
		require.NoError(t, err)
		require.Equal(t, azlease.StateTypeExpired, *seen.LeaseState)
		_, err = note(ctx, b, "x", underLease(l.LeaseID()))
		requireCode(t, err, bloberror.LeaseLost)
		_, err = l.RenewLease(ctx, nil)
		require.NoError(t, err, "nobody has written or leased it since")
		time.Sleep(time.Minute)
		_, err = note(ctx, b, "x", nil)
		require.NoError(t, err)
		_, err = l.RenewLease(ctx, nil)
		requireCode(t, err, bloberror.LeaseIDMismatchWithLeaseOperation)
	})
}

// quirks are what Azurite does otherwise than the service, and the fake with Azurite set.
func quirks(t *testing.T, c *container.Client) {
	ctx := t.Context()
	b := page(t, c, "b")
	old, dead := leaseOf(t, b, 1), leaseOf(t, b, 2)
	for _, l := range []*azlease.BlobClient{old, dead} {
		_, err := l.AcquireLease(ctx, 15, nil)
		require.NoError(t, err)
		time.Sleep(16 * time.Second)
	}
	renewed, err := old.RenewLease(ctx, nil)
	require.NoError(t, err, "the lease of another")
	require.Equal(t, *dead.LeaseID(), *renewed.LeaseID, "and the answer says whose it is")
	_, err = b.Create(ctx, pageblob.PageBytes, &pageblob.CreateOptions{AccessConditions: &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)},
	}})
	requireCode(t, err, bloberror.BlobAlreadyExists)
	_, err = note(ctx, b, "x", match(new(azcore.ETag(`"0x0"`))))
	requireCode(t, err, bloberror.ConditionNotMet)
	_, err = old.AcquireLease(ctx, 15, &azlease.BlobAcquireOptions{ModifiedAccessConditions: match(new(azcore.ETag(`"0x0"`))).ModifiedAccessConditions})
	requireCode(t, err, bloberror.ConditionNotMet)
}

// TestQuirks of Azurite, on the fake that imitates them and on itself. A new version that has one less breaks this test.
func TestQuirks(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := blobfake.New("c")
			s.Azurite = true
			quirks(t, client(t, "http://blob.invalid/devstoreaccount1/c", emulator.Transport(s, nil)))
		})
	})
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return
	}
	t.Run("azurite", func(t *testing.T) {
		e, err := emulator.StartAzurite(t.Context(), emulator.AzuriteOptions{})
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close()) }()
		wire := &http.Transport{}
		defer wire.CloseIdleConnections()
		c := client(t, e.URL+"/quirks", wire)
		_, err = c.Create(t.Context(), nil)
		require.NoError(t, err)
		quirks(t, c)
	})
}

// TestServiceIsNotAzurite: what the service is documented to do where Azurite differs, and both orders of looking.
func TestServiceIsNotAzurite(t *testing.T) {
	for _, leaseFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			s := blobfake.New("c")
			s.LeaseFirst = leaseFirst
			b := page(t, client(t, "http://blob.invalid/devstoreaccount1/c", emulator.Transport(s, nil)), "b")
			old, dead := leaseOf(t, b, 1), leaseOf(t, b, 2)
			_, err := dead.AcquireLease(ctx, 15, nil)
			require.NoError(t, err)
			_, err = b.Create(ctx, pageblob.PageBytes, &pageblob.CreateOptions{AccessConditions: &blob.AccessConditions{
				ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)},
			}})
			requireCode(t, err, bloberror.LeaseIDMissing)
			_, err = note(ctx, b, "x", match(new(azcore.ETag(`"0x0"`))))
			requireCode(t, err, bloberror.LeaseIDMissing)
			_, err = old.AcquireLease(ctx, 15, &azlease.BlobAcquireOptions{ModifiedAccessConditions: match(new(azcore.ETag(`"0x0"`))).ModifiedAccessConditions})
			requireCode(t, err, map[bool]bloberror.Code{false: bloberror.ConditionNotMet, true: bloberror.LeaseAlreadyPresent}[leaseFirst])
			time.Sleep(16 * time.Second)
			_, err = old.RenewLease(ctx, nil)
			requireCode(t, err, bloberror.LeaseIDMismatchWithLeaseOperation)
		})
	}
}
