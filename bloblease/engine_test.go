package bloblease_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// azurite is the one Azurite of all tests, started by the first that asks.
var azurite = sync.OnceValues(func() (*emulator.Engine, error) {
	started.Store(true)
	return emulator.StartAzurite(context.Background(), emulator.AzuriteOptions{})
})

var started atomic.Bool

// closeEngine ends Azurite, if it was started.
func closeEngine() error {
	if !started.Load() {
		return nil
	}
	if e, err := azurite(); err == nil { // otherwise the tests have said so
		return e.Close()
	}
	return nil
}

var containers atomic.Int64

// azureContainer makes a container of its own on Azurite.
func azureContainer(t *testing.T, wire http.RoundTripper) *container.Client {
	t.Helper()
	e, err := azurite()
	require.NoError(t, err)
	c := azureSDK(t, fmt.Sprintf("%s/locks%d", e.URL, containers.Add(1)), wire)
	_, err = c.Create(t.Context(), nil)
	require.NoError(t, err)
	return c
}

// azureSDK is a client of a container on Azurite, by its shared key.
func azureSDK(t *testing.T, url string, wire http.RoundTripper) *container.Client {
	t.Helper()
	key, err := container.NewSharedKeyCredential(emulator.AzuriteAccount, emulator.AzuriteKey)
	require.NoError(t, err)
	c, err := container.NewClientWithSharedKeyCredential(url, key, &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: wire}, Retry: policy.RetryOptions{MaxRetries: -1},
	}})
	require.NoError(t, err)
	return c
}
