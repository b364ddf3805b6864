package backend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

const azureRole = "give the identity the role Storage Blob Data Contributor on the container (cloudlease init --print policy), and let " +
	"the account's network rules pass this host"

// Check implements Backend.
func (a *azure) Check(ctx context.Context, report func(Item)) {
	wire := &lastReply{next: http.DefaultTransport}
	c, source, err := a.client(wire)
	report(verdict("credentials", "from "+source, "run az login, or set AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN", err))
	if err != nil {
		return
	}
	s, err := bloblease.New(c, a.options())
	if err != nil {
		report(verdict("configuration", "", "", err))
		return
	}
	_, err = s.Inspect(ctx, Probe)
	if wire.date.IsZero() && err != nil {
		report(verdict("reachability", "", "check the account's name, the endpoint, the network and its proxies", err))
		return
	}
	report(Item{Check: "reachability", Status: OK, Found: fmt.Sprintf("%s answered in %v", a.service(), wire.took.Round(time.Millisecond))})
	report(clockItem(wire.date, wire.sent, wire.sent.Add(wire.took)))
	report(verdict("container and blobs/read", "there, and allowed", azureRole, err))
	if errors.Is(err, lease.ErrMisconfigured) {
		return
	}
	a.kind(ctx, c, report)
	a.permissions(ctx, c, report)
	round(ctx, s, report)
}

// kind tells what the account is, and whether its tokens can be kept as the URL says.
func (a *azure) kind(ctx context.Context, c *container.Client, report func(Item)) {
	const check = "account kind"
	info, err := c.GetAccountInfo(ctx, nil)
	if err != nil || info.AccountKind == nil || info.SKUName == nil {
		why := "the service does not say"
		if err != nil {
			why = said(err)
		}
		report(Item{
			Check: check, Status: Skipped, Found: why,
			Fix: "locking does not need it; blobs/write below tells whether page blobs work",
		})
		return
	}
	kind := fmt.Sprintf("%s, %s", *info.AccountKind, *info.SKUName)
	pages := !strings.EqualFold(string(*info.AccountKind), "BlockBlobStorage")
	item := Item{Check: check, Status: OK, Found: kind}
	if info.IsHierarchicalNamespaceEnabled != nil && *info.IsHierarchicalNamespaceEnabled {
		item.Found, pages = kind+", hierarchical namespace", false
	}
	switch {
	case !pages && !a.metadata:
		item.Status, item.Fix = Fail, "this account has no page blobs: add tokens=metadata to the store's URL, on every host"
	case a.metadata:
		item.Found += "; tokens are kept in metadata"
	}
	report(item)
}

// neverMatches is an ETag that no blob has, so that a request conditioned on it changes nothing.
const neverMatches = azcore.ETag(`"0x0000000000000CL"`)

// permissions tries the actions of a holder and an operator in a way that changes nothing.
func (a *azure) permissions(ctx context.Context, c *container.Client, report func(Item)) {
	name := a.prefix + Probe
	condition := &blob.ModifiedAccessConditions{IfMatch: new(neverMatches)}
	_, err := c.NewPageBlobClient(name).Create(ctx, 512, &pageblob.CreateOptions{AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: condition}})
	if a.metadata {
		_, err = c.NewBlobClient(name).SetMetadata(ctx, nil, &blob.SetMetadataOptions{AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: condition}})
	}
	fix := azureRole
	if resp, ok := errors.AsType[*azcore.ResponseError](err); ok && strings.Contains(resp.ErrorCode, "Supported") {
		fix = "this account has no page blobs: add tokens=metadata to the store's URL, on every host"
	}
	report(verdict("blobs/write", "allowed", fix, refusedOnly(err)))
	l, err := azlease.NewBlobClient(c.NewBlobClient(name), nil)
	if err == nil {
		_, err = l.AcquireLease(ctx, int32(bloblease.MinTTL/time.Second), &azlease.BlobAcquireOptions{ModifiedAccessConditions: condition})
	}
	report(verdict("lease action", "allowed", azureRole, refusedOnly(err)))
	_, err = c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{MaxResults: new(int32(1))}).NextPage(ctx)
	item := verdict("list blobs", "allowed", azureRole, refusedOnly(err))
	if err != nil {
		item.Status = Warn
		item.Found += " (only list, watch and some histories need it)"
	}
	report(item)
}

// refusedOnly is nil if a request that had to be refused by its condition was refused by that.
func refusedOnly(err error) error {
	resp, ok := errors.AsType[*azcore.ResponseError](err)
	switch {
	case err == nil:
		return nil
	case ok && resp.StatusCode == http.StatusPreconditionFailed, ok && resp.ErrorCode == "BlobNotFound":
		return nil
	}
	return errors.New(said(err))
}

// Do implements policy.Transporter.
func (l *lastReply) Do(r *http.Request) (*http.Response, error) { return l.RoundTrip(r) }
