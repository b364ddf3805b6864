package backend

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/lease"
)

// consul is a part of Consul's key-value store. Its token, and the rest of how a client reaches Consul, come from the environment
// that the consul command reads (CONSUL_HTTP_TOKEN, CONSUL_CACERT, ...).
type consul struct {
	address string
	prefix  string // with a slash at its end; empty: the store's default
	scheme  string
	dc      string
	node    string
	minTTL  time.Duration
}

func newConsul(p place) (Backend, error) {
	if err := p.only("scheme", "dc", "node", "min-ttl"); err != nil {
		return nil, err
	}
	if p.Host == "" {
		return nil, invalid("the store's URL names no agent; write it as consul://HOST:8500/PREFIX")
	}
	c := &consul{address: p.Host, scheme: p.query.Get("scheme"), dc: p.query.Get("dc"), node: p.query.Get("node")}
	if p.Port() == "" {
		c.address += ":8500"
	}
	if c.scheme != "" && c.scheme != "http" && c.scheme != "https" {
		return nil, invalid("scheme=%.20s in the store's URL is neither http nor https", c.scheme)
	}
	if text := p.query.Get("min-ttl"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > consullock.MaxTTL {
			return nil, invalid("min-ttl=%.20s in the store's URL is no duration up to %v", text, consullock.MaxTTL)
		}
		c.minTTL = d
	}
	if prefix := strings.Trim(p.Path, "/"); prefix != "" {
		c.prefix = prefix + "/"
	}
	return c, nil
}

func (c *consul) URL() string {
	query := map[string]string{"scheme": c.scheme, "dc": c.dc, "node": c.node}
	if c.minTTL != 0 {
		query["min-ttl"] = c.minTTL.String()
	}
	return canonical("consul", c.address, "/"+strings.TrimSuffix(c.prefix, "/"), query)
}

func (c *consul) Shared() bool { return true }

// config is the client's configuration; wrap, if not nil, stands between it and the network.
func (c *consul) config(wrap func(http.RoundTripper) http.RoundTripper) (*api.Config, error) {
	cfg := api.DefaultConfig()
	cfg.Address, cfg.Datacenter = c.address, c.dc
	if c.scheme != "" {
		cfg.Scheme = c.scheme
	}
	if wrap == nil {
		return cfg, nil
	}
	client, err := api.NewHttpClient(cfg.Transport, cfg.TLSConfig)
	if err != nil {
		return nil, fmt.Errorf("%w: the TLS settings in the environment: %w", lease.ErrMisconfigured, err)
	}
	client.Transport = wrap(client.Transport)
	cfg.HttpClient = client
	return cfg, nil
}

func (c *consul) options() *consullock.Options {
	return &consullock.Options{Prefix: c.prefix, MinTTL: c.minTTL, Node: c.node, NameHolder: true}
}

func (c *consul) Open(context.Context) (lease.Store, error) {
	cfg, err := c.config(nil)
	if err != nil {
		return nil, err
	}
	return consullock.New(cfg, c.options())
}

// Init makes nothing: keys need no place that is made before. It tells whether they can be read.
func (c *consul) Init(ctx context.Context, o InitOptions) (string, error) {
	if o != (InitOptions{}) {
		return "", invalid("a prefix in Consul has no options: --deletion-protection, --backups and --purge-records are for DynamoDB")
	}
	s, err := c.Open(ctx)
	if err != nil {
		return "", err
	}
	if _, err := s.Inspect(ctx, Probe); err != nil {
		return "", err
	}
	return "there is nothing to make in Consul, and the prefix can be read; cloudlease doctor checks the rest", nil
}

// Forms implements Backend.
func (c *consul) Forms() []string { return []string{Policy, Terraform} }

// Document implements Backend.
func (c *consul) Document(form string) (string, error) {
	prefix := c.prefix
	if prefix == "" {
		prefix = "cloudlease/"
	}
	r := strings.NewReplacer("@PREFIX@", prefix)
	switch form {
	case Policy:
		return r.Replace(consulPolicy), nil
	case Terraform:
		return "resource \"consul_acl_policy\" \"locker\" {\n  name  = \"cloudlease-locker\"\n  rules = <<-RULES\n    " +
			strings.ReplaceAll(strings.TrimSpace(r.Replace(consulPolicy)), "\n", "\n    ") + "\n  RULES\n}\n", nil
	}
	return "", noSuchForm(c, form)
}

// consulPolicy is for who locks and operates; agent is for doctor alone.
const consulPolicy = `# cloudlease: consul acl policy create -name cloudlease-locker -rules @policy.hcl
key_prefix "@PREFIX@" {
  policy = "write"
}
session_prefix "" { # or session "NODE" for each agent that is asked
  policy = "write"
}
agent_prefix "" { # for cloudlease doctor alone
  policy = "read"
}
`
