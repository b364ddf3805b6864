package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/functions/internal/functiontest"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

func TestMain(m *testing.M) {
	// The runtime's signal goroutine starts with the first use and stays. It must not start inside a bubble.
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	signal.Stop(c)
	// The SDK's transport, which the function uses, keeps connections for the life of a process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"))
}

// secret is an ACL token, which must not appear in any log or error.
const secret = "5ec2e700-0000-4000-8000-00000000cafe"

var complete = functiontest.Environment{
	"LEASE_PREFIX": "cloudlease/", "PAYMENTS_PREFIX": "payments/", "RESULTS_PREFIX": "results/",
	"CONSUL_HTTP_ADDR": "http://127.0.0.1:1", "CONSUL_HTTP_TOKEN": secret,
}

// node is the name of the agent, and rules are the rights that docs/consul.md gives the function.
const (
	node  = "web-1"
	rules = `
session "web-1" {
  policy = "write"
}
key_prefix "cloudlease/" {
  policy = "write"
}
key_prefix "results/" {
  policy = "write"
}
key_prefix "payments/" {
  policy = "read"
}
`
)

// policy is rules for the fake.
var policy = consulfake.Policy{
	Keys:     map[string]string{"cloudlease/": "write", "results/": "write", "payments/": "read"},
	Sessions: map[string]string{node: "write"},
}

func fake() *consulfake.Server {
	return consulfake.New(&consulfake.Options{Node: node, Policies: map[string]consulfake.Policy{secret: policy}})
}

func TestEnvironment(t *testing.T) {
	c, err := configure(complete.With(map[string]string{"CONSUL_DATACENTER": "west", "LEASE_JOB": "other"}))
	require.NoError(t, err)
	require.Equal(t, "other", c.Job)
	require.Equal(t, "http://127.0.0.1:1", c.consul.Address)
	require.Equal(t, secret, c.consul.Token)
	require.Equal(t, "west", c.consul.Datacenter)
	for _, good := range []string{"127.0.0.1:8500", "consul.internal", "https://consul.internal:8501", "https://[::1]:8501/behind/a/proxy"} {
		_, err := newHandler(complete.With(map[string]string{"CONSUL_HTTP_ADDR": good, "CONSUL_HTTP_TOKEN": ""}))
		require.NoError(t, err, good)
	}
}

func TestBadEnvironment(t *testing.T) {
	functiontest.BadEnvironment(t, complete, newHandler, map[string]string{
		"LEASE_PREFIX": "", "PAYMENTS_PREFIX": "", "RESULTS_PREFIX": "", "CONSUL_HTTP_ADDR": "",
		"CONSUL_HTTP_SSL": "https", "CONSUL_HTTP_SSL_VERIFY": "never",
	})
	for _, name := range []string{"LEASE_PREFIX", "PAYMENTS_PREFIX", "RESULTS_PREFIX"} {
		for _, bad := range []string{"locks", "/locks/", "a//b/", "a.b/", "/", strings.Repeat("a", 200) + "/"} {
			_, err := newHandler(complete.With(map[string]string{name: bad}))
			require.ErrorContains(t, err, name, bad)
		}
	}
}

// What may be a secret at the wrong place is refused before anything is sent, and not repeated.
func TestSecretsAtTheWrongPlace(t *testing.T) {
	for _, bad := range []string{
		"https://", "ftp://SECRET", "https://me:SECRET@consul.internal", "consul.internal?token=SECRET", "consul.internal#SECRET", ":SECRET",
		"unix:///SECRET.sock", "SECRET\n",
	} {
		_, err := newHandler(complete.With(map[string]string{"CONSUL_HTTP_ADDR": bad}))
		require.ErrorContains(t, err, "CONSUL_HTTP_ADDR", bad)
		require.NotContains(t, err.Error(), "SECRET")
	}
	for _, bad := range []string{"SECRET\n", "SECRET two", "SECRET\u00a0"} {
		_, err := newHandler(complete.With(map[string]string{"CONSUL_HTTP_TOKEN": bad}))
		require.ErrorContains(t, err, "CONSUL_HTTP_TOKEN", bad)
		require.NotContains(t, err.Error(), "SECRET")
	}
}

// service is a Consul: where it is, a token for the function, and one that may do everything.
type service struct{ url, token, root string }

// services are what the function is tested on, both with the rights that it needs and no others.
func services() map[string]func(t *testing.T) service {
	all := map[string]func(t *testing.T) service{"fake": func(t *testing.T) service {
		t.Helper()
		const root = "root"
		s := consulfake.New(&consulfake.Options{Node: node, Policies: map[string]consulfake.Policy{
			secret: policy, root: {Keys: map[string]string{"": "write"}, Sessions: map[string]string{"": "write"}},
		}})
		e, err := emulator.Serve(s)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, e.Close())
			s.Close()
		})
		return service{e.URL, secret, root}
	}}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		all["agent"] = startAgent
	}
	return all
}

func startAgent(t *testing.T) service {
	t.Helper()
	const root = "11111111-2222-4333-8444-555555555555"
	ports, err := emulator.FreeConsulPorts()
	require.NoError(t, err)
	e, err := emulator.StartConsul(t.Context(), emulator.ConsulOptions{Node: node, Ports: ports, RootToken: root})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	call := func(path string, in map[string]any, out any) {
		body, err := json.Marshal(in)
		require.NoError(t, err)
		require.NoError(t, emulator.ConsulCall(t.Context(), ports, root, http.MethodPut, path, string(body), out))
	}
	call("/v1/acl/policy", map[string]any{"Name": "settlement", "Rules": rules}, nil)
	var made struct{ SecretID string }
	call("/v1/acl/token", map[string]any{"Policies": []map[string]string{{"Name": "settlement"}}}, &made)
	return service{e.URL, made.SecretID, root}
}

func (s service) env() map[string]string {
	return map[string]string{"CONSUL_HTTP_ADDR": s.url, "CONSUL_HTTP_TOKEN": s.token}
}

// config is that of a client that may do everything.
func (s service) config() *api.Config { return &api.Config{Address: s.url, Token: s.root} }

// TestSettles runs the whole function on a service: once per occurrence, the result in a fenced transaction.
func TestSettles(t *testing.T) {
	for name, start := range services() {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			root, err := api.NewClient(s.config())
			require.NoError(t, err)
			_, err = root.KV().Put(&api.KVPair{Key: "payments/2026-03-01", Value: day()}, nil)
			require.NoError(t, err)
			h, err := newHandler(complete.With(s.env()))
			require.NoError(t, err)
			results, err := consullock.NewGuard(s.config(), &consullock.GuardOptions{Prefix: "results/"})
			require.NoError(t, err)
			functiontest.Settles(t, h, results)
			_, err = h.Invoke(t.Context(), []byte(`{"occurrence":"2026-04-02T00:05:00Z"}`))
			require.ErrorContains(t, err, "payments/2026-04-01 is not there")
		})
	}
}

// day is thirty payments of 1 to 30 EUR.
func day() []byte {
	var all []string
	for n := 1; n <= 30; n++ {
		all = append(all, fmt.Sprintf(`{"id":"p%03d","cents":%d,"currency":"EUR"}`, n, n*100))
	}
	return []byte("[" + strings.Join(all, ",\n") + "]\n")
}

// A payment that is none fails the run, and says where it is; what comes before it is no day.
func TestForeignPayments(t *testing.T) {
	good := `{"id":"p1","cents":1,"currency":"EUR"}`
	for value, says := range map[string]string{
		"[" + good + `,{"id":"p2","currency":"EUR"},` + good + "]": `payment 2 of the key payments/2026-04-01: a payment has an "id"`,
		"[" + good + `,{"cents":1,"currency":"EUR"}]`:              `"id"`,
		"[" + good + `,{"id":"p2","cents":null,"currency":"EUR"}]`: "cents",
		"[" + good + `,{"id":"p2","cents":1,"currency":""}]`:       "currency",
		"[" + good + `,{"id":"p2","cents":1.5,"currency":"EUR"}]`:  "no JSON array of payments",
		"[" + good + `,{"id":"p2","cents":"1"}]`:                   "no JSON array of payments",
		"[" + good + `,{"id":"p2","amount":1}]`:                    "amount",
		"[" + good:                                                 "no JSON array of payments",
		"[" + good + "][" + good + "]":                             "more behind it",
		good:                                                       "no JSON array of payments",
		"null":                                                     "null",
		"":                                                         "no JSON array of payments",
	} {
		n, err := read(t, func(s *consulfake.Server) { s.Put("payments/2026-04-01", []byte(value)) })
		require.ErrorContains(t, err, says, value)
		require.ErrorContains(t, err, "payments/2026-04-01")
		require.LessOrEqual(t, n, 1)
	}
	n, err := read(t, func(s *consulfake.Server) { s.Put("payments/2026-04-01", []byte("[]")) })
	require.NoError(t, err)
	require.Zero(t, n)
}

// Nothing but an answer with the day is one.
func TestPaymentsThatCannotBeRead(t *testing.T) {
	_, err := read(t, func(*consulfake.Server) {})
	require.ErrorContains(t, err, "payments/2026-04-01 is not there")
	_, err = read(t, func(s *consulfake.Server) { s.SetLeader(false) })
	require.EqualError(t, err, "read the key payments/2026-04-01: the answer has status 500")

	_, err = readFrom(t, consulfake.New(&consulfake.Options{Policies: map[string]consulfake.Policy{secret: {}}}))
	require.ErrorIs(t, err, lease.ErrDenied)
	require.ErrorContains(t, err, `key_prefix "payments/" { policy = "read" }`)
}

// read reads a day from a service that prepare has prepared.
func read(t *testing.T, prepare func(*consulfake.Server)) (n int, failed error) {
	t.Helper()
	s := fake()
	prepare(s)
	return readFrom(t, s)
}

func readFrom(t *testing.T, s *consulfake.Server) (n int, failed error) {
	t.Helper()
	wire := answers(func(r *http.Request) (*http.Response, error) {
		require.True(t, r.URL.Query().Has("consistent"), "a leader that was deposed may answer otherwise")
		return emulator.Transport(s, nil).RoundTrip(r)
	})
	sdk, err := api.NewClient(&api.Config{Address: "consul.invalid", Token: secret, HttpClient: &http.Client{Transport: wire}})
	require.NoError(t, err)
	for _, err := range (&payments{sdk.KV(), "payments/"}).Day(t.Context(), "2026-04-01") {
		if err != nil {
			require.NoError(t, failed, "it ends there")
			failed = err
			continue
		}
		n++
	}
	return n, failed
}
