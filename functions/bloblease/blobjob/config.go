// Package blobjob puts the example job together with its lock, its payments and its results in Azure Blob Storage, from an
// environment. The functions on AWS Lambda and on Azure Functions share it.
package blobjob

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/functions/internal/environ"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lease"
)

// Config is what a function's environment says.
type Config struct {
	settlement.Config
	LeaseContainer    string // LEASE_CONTAINER
	PaymentsContainer string // PAYMENTS_CONTAINER
	ResultsContainer  string // RESULTS_CONTAINER
	MetadataTokens    bool   // LEASE_TOKENS, "page" unless told "metadata", for accounts without page blobs

	connection string // AZURE_STORAGE_CONNECTION_STRING, a secret
	service    string // AZURE_STORAGE_SERVICE_URL, with the identity that the environment has
}

// Configure reads an environment and reports all that is wrong with it at once, by name.
func Configure(getenv func(string) string) (Config, error) {
	r := environ.New(getenv)
	c := Config{
		Config:         settlement.Configure(r),
		LeaseContainer: r.Need("LEASE_CONTAINER"), PaymentsContainer: r.Need("PAYMENTS_CONTAINER"), ResultsContainer: r.Need("RESULTS_CONTAINER"),
		MetadataTokens: r.OneOf("LEASE_TOKENS", "page", "metadata") == "metadata",
		connection:     r.Get("AZURE_STORAGE_CONNECTION_STRING"), service: r.Get("AZURE_STORAGE_SERVICE_URL"),
	}
	if c.connection == "" && !isService(c.service) {
		r.Fault(errors.New("neither the environment variable AZURE_STORAGE_CONNECTION_STRING is set, nor AZURE_STORAGE_SERVICE_URL " +
			"a URL such as https://account.blob.core.windows.net, which the environment's identity is used for"))
	}
	return c, r.Err()
}

// isService tells whether text is the URL of a blob service and nothing more: a token goes over HTTPS only, and a signature has
// its place in a connection string.
func isService(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.RawQuery == "" && u.User == nil && u.Fragment == ""
}

// Open makes the client of the lock, and the job. It makes no request.
func (c Config) Open() (*lease.Client, *settlement.Settlement, error) {
	open, err := c.opener()
	if err != nil {
		return nil, nil, err
	}
	locks, locksErr := open(c.LeaseContainer)
	book, bookErr := open(c.PaymentsContainer)
	out, outErr := open(c.ResultsContainer)
	if err := errors.Join(locksErr, bookErr, outErr); err != nil {
		return nil, nil, err
	}
	store, err := bloblease.New(locks, &bloblease.Options{MetadataTokens: c.MetadataTokens})
	if err != nil {
		return nil, nil, err
	}
	client, err := c.Client(store)
	if err != nil {
		return nil, nil, err
	}
	results, err := bloblease.NewGuard(out, &bloblease.GuardOptions{ContentType: "application/json"})
	if err != nil {
		return nil, nil, err
	}
	job, err := c.Settlement(Payments{book}, results)
	return client, job, err
}

// opener makes clients of containers, with the credential that the environment gives.
func (c Config) opener() (func(name string) (*container.Client, error), error) {
	if c.connection != "" {
		return func(name string) (*container.Client, error) {
			client, err := container.NewClientFromConnectionString(c.connection, name, nil)
			if err != nil { // which may quote the string, and so the key
				return nil, errors.New("the environment variable AZURE_STORAGE_CONNECTION_STRING is no connection string of a storage account")
			}
			return client, nil
		}, nil
	}
	identity, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("find an identity for %s: %w", c.service, err)
	}
	return func(name string) (*container.Client, error) {
		place, err := url.JoinPath(c.service, name)
		if err != nil {
			return nil, fmt.Errorf("the environment variable AZURE_STORAGE_SERVICE_URL: %w", err)
		}
		return container.NewClient(place, identity, nil)
	}, nil
}
