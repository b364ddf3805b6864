package consullock_test

import (
	"flag"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 {
		if err := closeEngines(); err != nil {
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

const ttl = 6 * time.Second

// service is a Consul in this process, in virtual time inside a bubble.
type service struct {
	*consulfake.Server
	lost   atomic.Pointer[consulfake.Server] // that has come in its place
	offset time.Duration                     // of the clock that its Date headers tell
}

func newService(o consulfake.Options) *service {
	if o.MinTTL == 0 {
		o.MinTTL = time.Second
	}
	return &service{Server: consulfake.New(&o)}
}

func (s *service) now() time.Time { return time.Now().Add(s.offset) }

// config is a client's configuration for s; wrap, if not nil, stands between.
func (s *service) config(wrap func(http.RoundTripper) http.RoundTripper) *api.Config {
	wire := emulator.Transport(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fresh := s.lost.Load(); fresh != nil {
			fresh.ServeHTTP(w, r)
			return
		}
		s.ServeHTTP(w, r)
	}), s.now)
	if wrap != nil {
		wire = wrap(wire)
	}
	return configAt("consul.invalid:8500", wire)
}

func configAt(address string, wire http.RoundTripper) *api.Config {
	return &api.Config{Address: address, Scheme: "http", HttpClient: &http.Client{Transport: wire}}
}

// host is one host's store and what it sent.
type host struct {
	*consullock.Store
	sent *counter
}

func newStore(t require.TestingT, cfg *api.Config, o consullock.Options) *consullock.Store {
	if o.MinTTL == 0 {
		o.MinTTL = time.Second
	}
	st, err := consullock.New(cfg, &o)
	require.NoError(t, err)
	return st
}

func (s *service) host(t *testing.T, o consullock.Options) host {
	t.Helper()
	c := &counter{}
	return host{newStore(t, s.config(c.wrap), o), c}
}

func (h host) client(t *testing.T, o *lease.Options) *lease.Client {
	t.Helper()
	return clientOf(t, h.Store, o)
}

func clientOf(t *testing.T, st lease.Store, o *lease.Options) *lease.Client {
	t.Helper()
	if o == nil {
		o = &lease.Options{}
	}
	if o.TTL == 0 {
		o.TTL = ttl
	}
	if o.Observer == nil {
		o.Observer = lease.ObserverFunc(func(lease.Event) {})
	}
	c, err := lease.New(st, o)
	require.NoError(t, err)
	return c
}

// counter keeps what was sent, as words: "create", "destroy", "renew", "info", "txn", "get" and "wait".
type counter struct {
	mu   sync.Mutex
	sent []string
	at   []time.Time
	all  []*http.Request
}

func word(r *http.Request) string {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	switch {
	case parts[0] == "session":
		return parts[1]
	case parts[0] == "kv" && r.URL.Query().Has("index"):
		return "wait"
	case parts[0] == "kv":
		return strings.ToLower(r.Method)
	}
	return parts[0]
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		c.mu.Lock()
		c.sent, c.at, c.all = append(c.sent, word(r)), append(c.at, time.Now()), append(c.all, r.Clone(r.Context()))
		c.mu.Unlock()
		return next.RoundTrip(r)
	})
}

// take returns the requests since the last take, and forgets them.
func (c *counter) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	words := strings.Join(c.sent, " ")
	c.sent, c.at, c.all = nil, nil, nil
	return words
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a failure of the service's.
func answer(r *http.Request, status int, text string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}},
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}
}

func request(name string) lease.Request {
	return lease.Request{Name: name, Holder: "me", TTL: ttl, Attempt: "attempt-id", Since: lease.SystemClock()}
}

// hosts sends requests to the first address, and later to another.
type hosts struct {
	mu          sync.Mutex
	first, then string
	moved       bool
}

func (h *hosts) move() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moved = true
}

func (h *hosts) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		h.mu.Lock()
		to := h.first
		if h.moved {
			to = h.then
		}
		h.mu.Unlock()
		r = r.Clone(r.Context())
		r.URL.Host, r.Host = to, to
		return next.RoundTrip(r)
	})
}
