package backend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

// azure is a container of an Azure storage account. Its credential is the first that the environment has of: a connection
// string (AZURE_STORAGE_CONNECTION_STRING), a key (AZURE_STORAGE_KEY), a shared access signature (AZURE_STORAGE_SAS_TOKEN),
// and an identity as the Azure CLI or the host gives it.
type azure struct {
	account   string
	container string
	endpoint  string // of the blob service; empty: the public cloud's
	prefix    string
	metadata  bool // tokens in metadata, for accounts without page blobs
	getenv    func(string) string
}

func newAzure(p place) (Backend, error) {
	if err := p.only("endpoint", "prefix", "tokens"); err != nil {
		return nil, err
	}
	name := strings.Trim(p.Path, "/")
	if p.Host == "" || name == "" || strings.Contains(name, "/") {
		return nil, invalid("the store's URL names no container; write it as azblob://ACCOUNT/CONTAINER")
	}
	endpoint, err := p.endpoint()
	if err != nil {
		return nil, err
	}
	tokens := p.query.Get("tokens")
	if tokens != "" && tokens != "page" && tokens != "metadata" {
		return nil, invalid("tokens=%.20s in the store's URL is neither page nor metadata", tokens)
	}
	return &azure{
		account: p.Host, container: name, endpoint: strings.TrimSuffix(endpoint, "/"), prefix: p.query.Get("prefix"),
		metadata: tokens == "metadata", getenv: p.getenv,
	}, nil
}

func (a *azure) URL() string {
	query := map[string]string{"endpoint": a.endpoint, "prefix": a.prefix}
	if a.metadata {
		query["tokens"] = "metadata"
	}
	return canonical("azblob", a.account, "/"+a.container, query)
}

func (a *azure) Shared() bool { return true }

// service is the URL of the account's blob service.
func (a *azure) service() string {
	if a.endpoint != "" {
		return a.endpoint
	}
	return "https://" + a.account + ".blob.core.windows.net"
}

// client makes the SDK's client of the container, and says where its credential is from. A nil transport is the SDK's.
func (a *azure) client(transport policy.Transporter) (c *container.Client, source string, err error) {
	o := &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: transport}}
	place := a.service() + "/" + a.container
	connection, key, sas := a.getenv("AZURE_STORAGE_CONNECTION_STRING"), a.getenv("AZURE_STORAGE_KEY"), a.getenv("AZURE_STORAGE_SAS_TOKEN")
	switch {
	case connection != "":
		source = "AZURE_STORAGE_CONNECTION_STRING"
		if c, err = container.NewClientFromConnectionString(connection, a.container, o); err != nil { // the text may repeat it
			return nil, source, invalid("the environment variable %s is no connection string", source)
		}
		if a.endpoint == "" && !strings.Contains(c.URL(), "/"+a.account+".") && !strings.Contains(c.URL(), "/"+a.account+"/") {
			return nil, source, invalid("the environment variable %s is not that of the account %s", source, a.account)
		}
	case key != "":
		source = "AZURE_STORAGE_KEY"
		credential, keyErr := container.NewSharedKeyCredential(a.account, key)
		if keyErr != nil {
			return nil, source, invalid("the environment variable %s is no account key", source)
		}
		c, err = container.NewClientWithSharedKeyCredential(place, credential, o)
	case sas != "":
		source = "AZURE_STORAGE_SAS_TOKEN"
		c, err = container.NewClientWithNoCredential(place+"?"+strings.TrimPrefix(sas, "?"), o)
	default:
		source = "an identity (environment, workload, managed, or Azure CLI)"
		credential, idErr := azidentity.NewDefaultAzureCredential(nil)
		if idErr != nil {
			return nil, source, fmt.Errorf("%w: find an identity for %s: %w", lease.ErrMisconfigured, a.account, idErr)
		}
		c, err = container.NewClient(place, credential, o)
	}
	if err != nil {
		err = fmt.Errorf("%w: make a client of %s: %w", lease.ErrMisconfigured, a.URL(), err)
	}
	return c, source, err
}

func (a *azure) options() *bloblease.Options {
	return &bloblease.Options{Prefix: a.prefix, MetadataTokens: a.metadata}
}

func (a *azure) Open(context.Context) (lease.Store, error) {
	c, _, err := a.client(nil)
	if err != nil {
		return nil, err
	}
	return bloblease.New(c, a.options())
}

func (a *azure) Init(ctx context.Context, o InitOptions) (string, error) {
	if o != (InitOptions{}) {
		return "", invalid("a container has no options: --deletion-protection, --backups and --purge-records are for DynamoDB")
	}
	c, _, err := a.client(nil)
	if err != nil {
		return "", err
	}
	_, err = c.Create(ctx, nil)
	if resp, ok := errors.AsType[*azcore.ResponseError](err); ok && resp.ErrorCode == "ContainerAlreadyExists" {
		err = nil
	}
	if err != nil {
		return "", &lease.Error{
			Op: "create", Store: "container " + a.container + " of account " + a.account, Class: classOf(err), Err: errors.New(said(err)),
			Hint: "give the identity the role Storage Blob Data Contributor on the account, or create the container with your own tools: " +
				"cloudlease init --print terraform",
		}
	}
	return fmt.Sprintf("container %s of account %s is there", a.container, a.account), nil
}

// classOf is the class of an error of an operation that the store itself does not use.
func classOf(err error) error {
	resp, ok := errors.AsType[*azcore.ResponseError](err)
	switch {
	case !ok, resp.StatusCode >= http.StatusInternalServerError:
		return lease.ErrUnavailable
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return lease.ErrDenied
	}
	return lease.ErrMisconfigured
}

// said is what the service said, without the request that it repeats, which may carry a signature.
func said(err error) string {
	if resp, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return fmt.Sprintf("%d %s", resp.StatusCode, resp.ErrorCode)
	}
	return shortly(err)
}
