package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// AccountVariable is the URL of the storage account, such as https://NAME.blob.core.windows.net.
const AccountVariable = "CLOUDLEASE_LIVE_AZBLOB"

// connectionVariable is what the Azure CLI reads.
const connectionVariable = "AZURE_STORAGE_CONNECTION_STRING" //nolint:gosec // the name of a secret, not one

// Containers are the containers of one run in a storage account.
type Containers struct {
	account, connection string
	credential          azcore.TokenCredential // without a connection string
	made                made
}

// OpenContainers finds the account and credentials. It makes no request to the account.
func OpenContainers() (*Containers, error) {
	c := &Containers{account: os.Getenv(AccountVariable), connection: os.Getenv(connectionVariable), made: newMade()}
	if c.connection != "" {
		return c, nil
	}
	if c.account == "" {
		return nil, fmt.Errorf("configure a live storage account: set %s, or %s to its URL", connectionVariable, AccountVariable)
	}
	var err error
	if c.credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
		return nil, fmt.Errorf("configure a live storage account: %w", err)
	}
	return c, nil
}

// Client is a client of the container that does not retry by itself.
func (c *Containers) Client(name string, wire http.RoundTripper) (*container.Client, error) {
	o := &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: wire}, Retry: policy.RetryOptions{MaxRetries: -1},
	}}
	if c.connection != "" {
		return container.NewClientFromConnectionString(c.connection, name, o)
	}
	return container.NewClient(c.account+"/"+name, c.credential, o)
}

// Name is a container's name that nobody has.
func (c *Containers) Name() string { return c.made.next("cloudlease-live-%s-%d") }

// Create makes a container. One that exists is refused.
func (c *Containers) Create(ctx context.Context, name string) error {
	api, err := c.Client(name, brief())
	if err != nil {
		return err
	}
	_, err = api.Create(ctx, &container.CreateOptions{Metadata: map[string]*string{"cloudlease": &c.made.run}})
	switch {
	case bloberror.HasCode(err, bloberror.ContainerAlreadyExists):
		return refused("container", name, errors.New(string(bloberror.ContainerAlreadyExists)))
	case err != nil:
		return fmt.Errorf("create container %s: %w", name, err)
	}
	c.made.add(name)
	return nil
}

// Delete removes a container that Create has made.
func (c *Containers) Delete(ctx context.Context, name string) error {
	if err := c.made.take(name); err != nil {
		return err
	}
	api, err := c.Client(name, brief())
	if err == nil {
		_, err = api.Delete(ctx, nil)
	}
	return err
}
