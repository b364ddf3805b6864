//go:build unix

package service

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// lockContainer has the locks and, under another prefix, what they guard.
const lockContainer = "locks"

// AzureBlob is bloblease on Azurite.
type AzureBlob struct{}

// Name implements Service.
func (AzureBlob) Name() string { return "azblob" }

// TTL implements Service: the shortest that the service has.
func (AzureBlob) TTL() time.Duration { return bloblease.MinTTL }

// Bound implements Service. The minute that Azure documents beyond it is not Azurite's.
func (a AzureBlob) Bound() time.Duration { return 2*a.TTL() + 3*time.Second }

// Durable implements Service: Azurite keeps its state in memory here, and its disk mode loses the newest writes in a crash.
func (AzureBlob) Durable() bool { return false }

// Anew implements Service: Azurite is not started again.
func (AzureBlob) Anew() bool { return false }

// Kinds implements Service.
func (AzureBlob) Kinds() []proxy.Kind { return append(network(), proxy.WrongDate) }

// Start implements Service.
func (AzureBlob) Start(ctx context.Context, _ string, port int) (*Engine, error) {
	e, err := emulator.StartAzurite(ctx, emulator.AzuriteOptions{Port: port})
	if err != nil {
		return nil, err
	}
	return &Engine{URL: e.URL, Kill: e.Close}, nil
}

// azure is a client of the container, by the account's shared key. Like that of DynamoDB it does not retry by itself.
func azure(url string, wire http.RoundTripper) (*container.Client, error) {
	key, err := container.NewSharedKeyCredential(emulator.AzuriteAccount, emulator.AzuriteKey)
	if err != nil {
		return nil, err
	}
	return container.NewClientWithSharedKeyCredential(url+"/"+lockContainer, key, &container.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: wire}, Retry: policy.RetryOptions{MaxRetries: -1}},
	})
}

// Prepare implements Service.
func (AzureBlob) Prepare(ctx context.Context, url string) error {
	c, err := azure(url, nil)
	if err != nil {
		return err
	}
	_, err = c.Create(ctx, nil)
	return err
}

// Open implements Service.
func (AzureBlob) Open(url string, clock lease.Clock) (Opened, error) {
	wire := &http.Transport{MaxIdleConnsPerHost: 16}
	c, err := azure(url, wire)
	if err != nil {
		return Opened{}, err
	}
	s, err := bloblease.New(c, &bloblease.Options{Clock: clock})
	if err != nil {
		return Opened{}, err
	}
	g, err := bloblease.NewGuard(c, nil)
	return Opened{Store: s, Guard: g, Close: wire.CloseIdleConnections}, err
}

// Leftovers implements Service.
func (a AzureBlob) Leftovers(ctx context.Context, url string) ([]string, error) {
	o, err := a.Open(url, nil)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return locked(ctx, o.Store)
}

// Classify implements proxy.Service.
func (AzureBlob) Classify(r *http.Request, _ []byte) proxy.Request {
	what := "locks"
	if strings.Contains(r.URL.Path, "/"+lockContainer+"/guarded/") {
		what = "guarded"
	}
	op := strings.TrimRight(fmt.Sprintf("%s.%s %s %s", what, r.Method, r.URL.Query().Get("comp"), r.Header.Get("X-Ms-Lease-Action")), " ")
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	return proxy.Request{Op: op, Key: r.URL.Path, Read: read, Consistent: true, Repeatable: what == "locks" && !read}
}

// SecretKinds implements Service.
func (AzureBlob) SecretKinds() []string { return []string{leaseID, signature, credential} }

// Credentials implements Service.
func (AzureBlob) Credentials() []string { return []string{emulator.AzuriteKey} }

// Secrets implements proxy.Service.
func (AzureBlob) Secrets(m proxy.Message, found func(kind, secret string)) {
	for _, name := range []string{"X-Ms-Lease-Id", "X-Ms-Proposed-Lease-Id"} {
		found(leaseID, m.Header.Get(name))
	}
	_, signed, _ := strings.Cut(m.Header.Get("Authorization"), ":") // after the account's name
	found(signature, signed)
	for _, signed := range m.URL.Query()["sig"] {
		found(signature, signed)
		found(signature, url.QueryEscape(signed))
	}
}

// Answer implements proxy.Service.
func (AzureBlob) Answer(kind proxy.Kind, r *http.Request) proxy.Answer {
	status, code := http.StatusInternalServerError, "InternalError"
	if kind == proxy.Throttle {
		status, code = http.StatusServiceUnavailable, "ServerBusy"
	}
	a := proxy.Answer{Status: status, Header: http.Header{"X-Ms-Error-Code": {code}, "X-Ms-Request-Id": {"FAULT"}}}
	if r.Method != http.MethodHead {
		a.Header.Set("Content-Type", "application/xml")
		a.Body = fmt.Sprintf(`<?xml version="1.0" encoding="utf-8"?><Error><Code>%s</Code><Message>made by the fault proxy</Message></Error>`, code)
	}
	return a
}
