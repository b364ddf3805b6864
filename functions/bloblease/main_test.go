package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/functions/bloblease/blobjob"
	"github.com/cloudlease/cloudlease/functions/internal/functiontest"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

func TestMain(m *testing.M) {
	// The SDK's transport, which the function uses, keeps connections for the life of a process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"))
}

var complete = functiontest.Environment{
	"LEASE_CONTAINER": "locks", "PAYMENTS_CONTAINER": "payments", "RESULTS_CONTAINER": "results",
	"AZURE_STORAGE_CONNECTION_STRING": emulator.AzuriteConnection("http://127.0.0.1:1/devstoreaccount1"),
}

func TestEnvironment(t *testing.T) {
	c, err := blobjob.Configure(complete.With(nil))
	require.NoError(t, err)
	require.Equal(t, "settlement", c.Job)
	require.False(t, c.MetadataTokens)
	c, err = blobjob.Configure(complete.With(map[string]string{"LEASE_TOKENS": "metadata", "LEASE_JOB": "other"}))
	require.NoError(t, err)
	require.Equal(t, "other", c.Job)
	require.True(t, c.MetadataTokens)
	_, err = newHandler(complete.With(map[string]string{
		"AZURE_STORAGE_CONNECTION_STRING": "", "AZURE_STORAGE_SERVICE_URL": "https://account.blob.core.windows.net",
	}))
	require.NoError(t, err, "an identity is looked for when it is needed")
}

func TestBadEnvironment(t *testing.T) {
	functiontest.BadEnvironment(t, complete, newHandler, map[string]string{
		"LEASE_CONTAINER": "", "PAYMENTS_CONTAINER": "", "RESULTS_CONTAINER": "", "LEASE_TOKENS": "some",
		"AZURE_STORAGE_CONNECTION_STRING": "AccountKey",
	})
	_, err := newHandler(func(string) string { return "" })
	require.ErrorContains(t, err, "AZURE_STORAGE_SERVICE_URL")
}

// A URL that a token must not go to, or that carries a secret of its own, is refused before anything is sent, and not repeated.
func TestServiceURL(t *testing.T) {
	for _, bad := range []string{
		"account", "https://", "http://account.blob.core.windows.net", "https://account.blob.core.windows.net?sv=1&sig=SECRET",
		"https://me:SECRET@account.blob.core.windows.net", "https://account.blob.core.windows.net#SECRET", ":SECRET",
	} {
		_, err := newHandler(complete.With(map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "", "AZURE_STORAGE_SERVICE_URL": bad}))
		require.ErrorContains(t, err, "AZURE_STORAGE_SERVICE_URL", bad)
		require.NotContains(t, err.Error(), "SECRET")
	}
	for _, bad := range []string{
		"AccountName=a;AccountKey=SECRET", "AccountName=a;AccountKey=*SECRET*;BlobEndpoint=https://a.invalid", "SECRET",
	} {
		_, err := newHandler(complete.With(map[string]string{"AZURE_STORAGE_CONNECTION_STRING": bad}))
		require.ErrorContains(t, err, "AZURE_STORAGE_CONNECTION_STRING", bad)
		require.NotContains(t, err.Error(), "SECRET")
	}
}

// engines are what the function is tested on.
func engines() map[string]func(t *testing.T) *emulator.Engine {
	all := map[string]func(t *testing.T) *emulator.Engine{"fake": func(t *testing.T) *emulator.Engine {
		t.Helper()
		e, err := emulator.Serve(blobfake.New())
		require.NoError(t, err)
		e.URL += "/" + emulator.AzuriteAccount
		return e
	}}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		all["azurite"] = func(t *testing.T) *emulator.Engine {
			t.Helper()
			e, err := emulator.StartAzurite(t.Context(), emulator.AzuriteOptions{})
			require.NoError(t, err)
			return e
		}
	}
	return all
}

// TestSettles runs the whole function on an engine: once per occurrence, the result in a fenced blob.
func TestSettles(t *testing.T) {
	for name, start := range engines() {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			defer func() { require.NoError(t, e.Close()) }()
			connection := emulator.AzuriteConnection(e.URL)
			seed(t, connection)
			h, err := newHandler(complete.With(map[string]string{"AZURE_STORAGE_CONNECTION_STRING": connection}))
			require.NoError(t, err)
			results, err := bloblease.NewGuard(client(t, connection, "results"), nil)
			require.NoError(t, err)
			functiontest.Settles(t, h, results)
			_, err = h.Invoke(t.Context(), []byte(`{"occurrence":"2026-04-02T00:05:00Z"}`))
			require.ErrorContains(t, err, "2026-04-01.jsonl is not there")
		})
	}
}

func client(t *testing.T, connection, name string) *container.Client {
	t.Helper()
	c, err := container.NewClientFromConnectionString(connection, name, nil)
	require.NoError(t, err)
	return c
}

// seed makes the containers and thirty payments of 1 to 30 EUR on one day.
func seed(t *testing.T, connection string) {
	t.Helper()
	for _, name := range []string{"locks", "payments", "results"} {
		_, err := client(t, connection, name).Create(t.Context(), nil)
		require.NoError(t, err)
	}
	var lines strings.Builder
	for n := 1; n <= 30; n++ {
		fmt.Fprintf(&lines, "{\"id\":\"p%03d\",\"cents\":%d,\"currency\":\"EUR\"}\n\n", n, n*100)
	}
	_, err := client(t, connection, "payments").NewBlockBlobClient("2026-03-01.jsonl").UploadBuffer(t.Context(), []byte(lines.String()), nil)
	require.NoError(t, err)
}

// A line that is no payment fails the run, and says where it is.
func TestForeignPayments(t *testing.T) {
	e, err := emulator.Serve(blobfake.New("payments"))
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	c := client(t, emulator.AzuriteConnection(e.URL+"/"+emulator.AzuriteAccount), "payments")
	good := `{"id":"p1","cents":1,"currency":"EUR"}` + "\n"
	for line, says := range map[string]string{
		`{"id":"p2","currency":"EUR"}`:               "cents",
		`{"id":"p2","cents":1.5,"currency":"EUR"}`:   "no payment",
		`{"id":"p2","cents":1,"currency":"EUR"`:      "no payment",
		`{"id":"p2","cents":1,"amount":1}`:           "amount",
		`{"cents":1,"currency":"EUR"}`:               `"id"`,
		`"` + strings.Repeat("x", 64<<10) + `"`:      "2026-04-01.jsonl",
		`{"id":"p2","cents":"1","currency":"EUR"}`:   "no payment",
		`{"id":"p2","cents":1,"currency":""}`:        "currency",
		`{"id":"p2","cents":null,"currency":"EUR" }`: "cents",
		good[:len(good)-1] + good[:len(good)-1]:      "a line has one",
	} {
		_, err := c.NewBlockBlobClient("2026-04-01.jsonl").UploadBuffer(t.Context(), []byte(good+line+"\n"+good), nil)
		require.NoError(t, err)
		var failed error
		n := 0
		for _, err := range (blobjob.Payments{Client: c}).Day(t.Context(), "2026-04-01") {
			n++
			failed = err
		}
		require.Equal(t, 2, n, "it ends there")
		require.ErrorContains(t, failed, says)
		require.ErrorContains(t, failed, "2026-04-01.jsonl")
	}
}

// A connection that fails does not put the signature of a URL into the logs.
func TestPaymentsKeepSignaturesSecret(t *testing.T) {
	wire := &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") })}
	c, err := container.NewClientWithNoCredential("https://account.invalid/payments?sv=1&sig=SECRET", &container.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: wire, Retry: policy.RetryOptions{MaxRetries: -1}},
	})
	require.NoError(t, err)
	n := 0
	for _, err := range (blobjob.Payments{Client: c}).Day(t.Context(), "2026-04-01") {
		n++
		require.ErrorContains(t, err, "no route")
		require.ErrorContains(t, err, "2026-04-01.jsonl")
		require.NotContains(t, err.Error(), "SECRET")
	}
	require.Equal(t, 1, n)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
