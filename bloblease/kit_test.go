package bloblease_test

import (
	"bytes"
	"flag"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests on the engine wait for leases to end, and hardly compute: they wait together.
	if err := flag.Set("test.parallel", "56"); err != nil {
		panic(err)
	}
	code := m.Run()
	if code == 0 {
		if err := closeEngine(); err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error())
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// service is an Azure Blob Storage in this process, in virtual time inside a bubble.
type service struct {
	*blobfake.Service
	offset time.Duration // of the clock that its Date headers tell
}

const (
	fakeURL = "http://blob.invalid/account/locks"
	locks   = "locks"
)

func newService() *service { return &service{Service: blobfake.New(locks)} }

func (s *service) now() time.Time { return time.Now().Add(s.offset) }

// sdk is a client of a container of s; wrap, if not nil, stands between.
func (s *service) sdk(t require.TestingT, wrap func(http.RoundTripper) http.RoundTripper) *container.Client {
	wire := emulator.Transport(s.Service, s.now)
	if wrap != nil {
		wire = wrap(wire)
	}
	return sdkAt(t, fakeURL, wire)
}

func sdkAt(t require.TestingT, url string, wire http.RoundTripper) *container.Client {
	c, err := container.NewClientWithNoCredential(url, &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: wire}, Retry: policy.RetryOptions{MaxRetries: -1},
	}})
	require.NoError(t, err)
	return c
}

// host is one host's store and what it sent.
type host struct {
	*bloblease.Store
	sent *counter
}

func (s *service) host(t *testing.T, o *bloblease.Options) host {
	t.Helper()
	c := &counter{}
	st, err := bloblease.New(s.sdk(t, c.wrap), o)
	require.NoError(t, err)
	return host{st, c}
}

func (h host) client(t *testing.T, o *lease.Options) *lease.Client {
	t.Helper()
	if o == nil {
		o = &lease.Options{}
	}
	if o.Observer == nil {
		o.Observer = lease.ObserverFunc(func(lease.Event) {})
	}
	c, err := lease.New(h.Store, o)
	require.NoError(t, err)
	return c
}

// counter keeps what was sent, as words: "head", "create", "number", "note", "acquire", "renew", "release", "break", "list",
// "page", "get", "tags" and "put".
type counter struct {
	mu   sync.Mutex
	sent []string
	all  []http.Header
}

func word(r *http.Request) string {
	comp := r.URL.Query().Get("comp")
	switch {
	case r.Method == http.MethodHead:
		return "head"
	case comp == "lease":
		return canonical(r.Header).Get("x-ms-lease-action")
	case comp == "metadata":
		return "note"
	case comp == "properties":
		return "number"
	case comp != "":
		return comp
	case r.Method == http.MethodPut && canonical(r.Header).Get("If-None-Match") == "*":
		return "create"
	}
	return strings.ToLower(r.Method)
}

// canonical is h with the names of headers as they arrive; the SDK writes them in lower case.
func canonical(h http.Header) http.Header {
	out := http.Header{}
	for k, values := range h {
		for _, v := range values {
			out.Add(k, v)
		}
	}
	return out
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		c.mu.Lock()
		c.sent = append(c.sent, word(r))
		c.all = append(c.all, canonical(r.Header))
		c.mu.Unlock()
		return next.RoundTrip(r)
	})
}

// take returns the requests since the last take, and forgets them.
func (c *counter) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	words := strings.Join(c.sent, " ")
	c.sent = nil
	return words
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a refusal of the service's.
func answer(r *http.Request, status int, code string) *http.Response {
	h := http.Header{"X-Ms-Error-Code": {code}, "X-Ms-Request-Id": {"refused"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}}
	body := ""
	if r.Method != http.MethodHead {
		body = `<?xml version="1.0" encoding="utf-8"?><Error><Code>` + code + `</Code><Message>refused on purpose</Message></Error>`
		h.Set("Content-Type", "application/xml")
	}
	return &http.Response{
		StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

func request(name string) lease.Request {
	return lease.Request{Name: name, Holder: "me", TTL: bloblease.MinTTL, Attempt: "attempt-id", Since: lease.SystemClock()}
}

func emulatorTransport(s *service) http.RoundTripper { return emulator.Transport(s.Service, s.now) }

func body(b []byte) io.ReadSeekCloser { return streaming.NopCloser(bytes.NewReader(b)) }
