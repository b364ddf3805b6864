package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/hashicorp/consul/api"
)

// Prefixes are the keys of one run in a Consul.
type Prefixes struct {
	api  *api.Client
	made made
}

// OpenPrefixes finds the agent as Consul's own tools do. It makes no request to it.
func OpenPrefixes() (*Prefixes, error) {
	if os.Getenv(api.HTTPAddrEnvName) == "" {
		return nil, fmt.Errorf("configure a live Consul: set %s", api.HTTPAddrEnvName)
	}
	cfg := api.DefaultConfig()
	cfg.Transport.DisableKeepAlives = true
	c, err := api.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("configure a live Consul: %w", err)
	}
	return &Prefixes{api: c, made: newMade()}, nil
}

// Config is a client's configuration. It has no transport of its own: wire is it.
func (p *Prefixes) Config(wire http.RoundTripper) *api.Config {
	cfg := api.DefaultConfig()
	cfg.Transport, cfg.HttpClient = nil, &http.Client{Transport: wire}
	return cfg
}

// Name is a prefix that nobody has.
func (p *Prefixes) Name() string { return p.made.next("cloudlease-live/%s/%d/") }

// Create makes sure that nobody has keys below prefix. If there are any it is refused.
func (p *Prefixes) Create(ctx context.Context, prefix string) error {
	keys, _, err := p.api.KV().Keys(prefix, "", (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("look for keys below %s: %w", prefix, err)
	}
	if len(keys) > 0 {
		return refused("prefix", prefix, errors.New("it has keys"))
	}
	p.made.add(prefix)
	return nil
}

// Remove deletes the keys below prefix, which lies in one that Create has given.
func (p *Prefixes) Remove(ctx context.Context, prefix string) error {
	if !p.made.within(prefix) {
		return fmt.Errorf("delete %s: refused, it lies outside what this run has made", prefix)
	}
	_, err := p.api.KV().DeleteTree(prefix, (&api.WriteOptions{}).WithContext(ctx))
	return err
}

// within tells whether name lies in what was made here.
func (m *made) within(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for have := range m.names {
		if strings.HasPrefix(name, have) {
			return true
		}
	}
	return false
}
