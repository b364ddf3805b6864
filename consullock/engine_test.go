package consullock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/internal/live"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

const (
	rootToken = "11111111-2222-4333-8444-555555555555"
	nodeName  = "web-1" // as in docs/consul.md
)

// agent is a Consul agent whose ACLs let a token do what docs/consul.md says, and nothing else.
type agent struct {
	*emulator.Engine
	ports emulator.ConsulPorts
	token string
}

// shared is the one agent of the tests that do not end it, started by the first that asks.
var shared = sync.OnceValues(func() (*agent, error) {
	started.Store(true)
	return startAgent(context.Background())
})

var started atomic.Bool

// closeEngines ends the shared agent, if it was started.
func closeEngines() error {
	if !started.Load() {
		return nil
	}
	if a, err := shared(); err == nil { // otherwise the tests have said so
		return a.Close()
	}
	return nil
}

func startAgent(ctx context.Context) (*agent, error) {
	ports, err := emulator.FreeConsulPorts()
	if err != nil {
		return nil, err
	}
	e, err := emulator.StartConsul(ctx, emulator.ConsulOptions{Node: nodeName, Ports: ports, RootToken: rootToken})
	if err != nil {
		return nil, err
	}
	a := &agent{Engine: e, ports: ports}
	rules, err := documentedRules()
	if err == nil {
		a.token, err = a.tokenFor(ctx, rules)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return a, nil
}

// documentedRules are the first rules in docs/consul.md.
func documentedRules() (string, error) {
	doc, err := os.ReadFile("../docs/consul.md")
	if err != nil {
		return "", err
	}
	block := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindSubmatch(doc)
	if block == nil {
		return "", errors.New("docs/consul.md has no rules")
	}
	return string(block[1]), nil
}

var policies atomic.Int64

// tokenFor makes an ACL token with these rules.
func (a *agent) tokenFor(ctx context.Context, rules string) (string, error) {
	name := fmt.Sprint("policy-", policies.Add(1))
	policy, err := json.Marshal(map[string]string{"Name": name, "Rules": rules})
	if err != nil {
		return "", err
	}
	if err := emulator.ConsulCall(ctx, a.ports, rootToken, http.MethodPut, "/v1/acl/policy", string(policy), nil); err != nil {
		return "", err
	}
	var made struct{ SecretID string }
	body := fmt.Sprintf(`{"Policies": [{"Name": %q}]}`, name)
	err = emulator.ConsulCall(ctx, a.ports, rootToken, http.MethodPut, "/v1/acl/token", body, &made)
	return made.SecretID, err
}

// config is a client's configuration; wrap, if not nil, stands between.
func (a *agent) config(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) *api.Config {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	var wire http.RoundTripper = transport
	if wrap != nil {
		wire = wrap(wire)
	}
	cfg := configAt("127.0.0.1:"+strconv.Itoa(a.ports.HTTP), wire)
	cfg.Token = a.token
	return cfg
}

func (a *agent) root(t *testing.T, method, path string) {
	t.Helper()
	require.NoError(t, emulator.ConsulCall(context.Background(), a.ports, rootToken, method, path, "", nil))
}

func engines() bool { return os.Getenv(emulator.EnginesVariable) == "1" }

// TestInRealTime runs both specifications in real time on an agent whose ACLs allow what docs/consul.md says and nothing else.
func TestInRealTime(t *testing.T) {
	if !engines() {
		return
	}
	a, err := shared()
	require.NoError(t, err)
	inRealTime(t, func(t *testing.T, o consullock.Options) *backend {
		t.Helper()
		return newReal(t, a, o)
	})
}

// TestLive runs both specifications on a Consul of yours, if it is asked for: see internal/live. Its servers must allow sessions
// of a second (session_ttl_min).
func TestLive(t *testing.T) {
	if !live.Wanted(live.Consul) {
		return
	}
	prefixes, err := live.OpenPrefixes()
	require.NoError(t, err)
	inRealTime(t, func(t *testing.T, o consullock.Options) *backend {
		t.Helper()
		return newLive(t, prefixes, o)
	})
}

func inRealTime(t *testing.T, service func(*testing.T, consullock.Options) *backend) {
	t.Helper()
	for name, o := range map[string]consullock.Options{"plain": {}, "naming the holder": {NameHolder: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leasetest.TestStore(t, leasetest.Harness{
				TTL: ttl, Slack: ttl, PerSecond: perSecond, Rounds: 2, Anonymous: !o.NameHolder, New: func(t *testing.T) leasetest.Backend {
					t.Helper()
					return service(t, o)
				},
			})
		})
	}
	t.Run("guard", func(t *testing.T) {
		t.Parallel()
		leasetest.TestGuard(t, leasetest.GuardHarness{New: func(t *testing.T) leasetest.Guarded {
			t.Helper()
			return service(t, consullock.Options{})
		}})
	})
}

var prefixes atomic.Int64

// newReal is a prefix of its own for one subtest.
func newReal(t *testing.T, a *agent, o consullock.Options) *backend {
	t.Helper()
	o.Prefix = fmt.Sprintf("cloudlease/%d/", prefixes.Add(1))
	return &backend{
		opt: o, config: func(wrap func(http.RoundTripper) http.RoundTripper) *api.Config { return a.config(t, wrap) },
		remove: func(t *testing.T, folder string) {
			t.Helper()
			a.root(t, http.MethodDelete, "/v1/kv/"+url.PathEscape(folder)+"?recurse")
		},
	}
}

// newLive is a prefix of its own for one subtest, whose keys are removed with it.
func newLive(t *testing.T, prefixes *live.Prefixes, o consullock.Options) *backend {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	o.Prefix = prefixes.Name()
	require.NoError(t, prefixes.Create(t.Context(), o.Prefix))
	t.Cleanup(func() { assert.NoError(t, prefixes.Remove(context.Background(), o.Prefix)) })
	return &backend{
		opt: o, config: func(wrap func(http.RoundTripper) http.RoundTripper) *api.Config {
			return prefixes.Config(wrap(transport))
		},
		remove: func(t *testing.T, folder string) {
			t.Helper()
			require.NoError(t, prefixes.Remove(t.Context(), folder))
		},
	}
}
