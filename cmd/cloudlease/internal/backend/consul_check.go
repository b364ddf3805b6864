package backend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/lease"
)

const consulRules = "give the token the rules of: cloudlease init --print policy"

// Check implements Backend.
func (c *consul) Check(ctx context.Context, report func(Item)) {
	wire := &lastReply{}
	cfg, err := c.config(wire.around)
	if err != nil {
		report(verdict("configuration", "", "", err))
		return
	}
	client, err := api.NewClient(cfg)
	if err != nil {
		report(verdict("configuration", "", "", err))
		return
	}
	s, err := consullock.New(cfg, c.options())
	if err != nil {
		report(verdict("configuration", "", "", err))
		return
	}
	leader, err := client.Status().LeaderWithQueryOptions(new(api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		report(verdict("reachability", "", "check the address, the scheme, the certificates (CONSUL_CACERT) and the network", errors.New(consulSaid(err))))
		return
	case leader == "":
		report(Item{Check: "reachability", Status: Fail, Found: "the agent answers, but its datacenter has no leader", Fix: "bring a majority of the servers back"})
		return
	}
	report(Item{Check: "reachability", Status: OK, Found: fmt.Sprintf("the agent at %s answered in %v, and there is a leader", c.address, wire.took.Round(time.Millisecond))})
	report(clockItem(wire.date, wire.sent, wire.sent.Add(wire.took)))
	c.token(ctx, client, report)
	_, err = s.Inspect(ctx, Probe)
	report(verdict("key read", "allowed", consulRules, err))
	if errors.Is(err, lease.ErrMisconfigured) {
		return
	}
	c.permissions(ctx, client, report)
	c.agent(ctx, client, report)
	round(ctx, s, report)
}

// token tells whether there are ACLs, and what the token is.
func (c *consul) token(ctx context.Context, client *api.Client, report func(Item)) {
	const check = "ACL token"
	self, _, err := client.ACL().TokenReadSelf(new(api.QueryOptions{}).WithContext(ctx))
	switch {
	case err == nil && self.AccessorID == "00000000-0000-0000-0000-000000000002":
		report(Item{Check: check, Status: OK, Found: "none: the anonymous token is used"})
	case err == nil:
		report(Item{Check: check, Status: OK, Found: "accepted: " + self.Description})
	case strings.Contains(err.Error(), "ACL support disabled"), strings.Contains(err.Error(), "404"):
		report(Item{Check: check, Status: OK, Found: "not needed: ACLs are off"})
	default:
		report(verdict(check, "", "set CONSUL_HTTP_TOKEN to a token that is known, or make one: consul acl token create", errors.New(consulSaid(err))))
	}
}

// permissions tries the actions of a holder in a way that leaves nothing.
func (c *consul) permissions(ctx context.Context, client *api.Client, report func(Item)) {
	key := c.prefix + "locks/" + Probe + "/never"
	if c.prefix == "" {
		key = "cloudlease/" + key
	}
	ops := api.TxnOps{
		{KV: &api.KVTxnOp{Verb: api.KVCheckIndex, Key: key, Index: 1}}, // never true: there is no such key
		{KV: &api.KVTxnOp{Verb: api.KVSet, Key: key, Value: []byte("never written")}},
	}
	_, resp, _, err := client.Txn().Txn(ops, new(api.QueryOptions{}).WithContext(ctx))
	if err == nil {
		for _, e := range resp.Errors {
			if strings.Contains(strings.ToLower(e.What), "permission denied") {
				err = errors.New(e.What)
			}
		}
	}
	report(verdict("key write", "allowed", consulRules, err))
	ttl := c.minTTL
	if ttl == 0 {
		ttl = consullock.DefaultMinTTL
	}
	write := new(api.WriteOptions{}).WithContext(ctx)
	id, _, err := client.Session().Create(&api.SessionEntry{Name: Probe, Node: c.node, TTL: ttl.String(), Behavior: "release"}, write)
	fix := consulRules
	if err != nil && strings.Contains(err.Error(), "TTL") {
		fix = "the agents have another session_ttl_min: say so with min-ttl=DURATION in the store's URL"
	}
	if err == nil {
		_, err = client.Session().Destroy(id, write)
	} else {
		err = errors.New(consulSaid(err))
	}
	report(verdict("session write", fmt.Sprintf("allowed, with a TTL of %v", ttl), fix, err))
}

// agent compares the URL's least TTL with the agent's.
func (c *consul) agent(ctx context.Context, client *api.Client, report func(Item)) {
	const check = "TTL minimum"
	var self map[string]map[string]any
	if _, err := client.Raw().Query("/v1/agent/self", &self, new(api.QueryOptions{}).WithContext(ctx)); err != nil {
		report(Item{
			Check: check, Status: Skipped, Found: consulSaid(err),
			Fix: "allow agent_prefix \"\" read for doctor; session write above has shown that the minimum is not higher",
		})
		return
	}
	version, _ := self["Config"]["Version"].(string)
	text, _ := self["DebugConfig"]["SessionTTLMin"].(string)
	least, parseErr := time.ParseDuration(text)
	if parseErr != nil || least == 0 {
		least = consullock.DefaultMinTTL
	}
	item := Item{Check: check, Status: OK, Found: fmt.Sprintf("%v at this agent (Consul %s)", least, version)}
	want := c.minTTL
	if want == 0 {
		want = consullock.DefaultMinTTL
	}
	if least > want {
		item.Status, item.Fix = Fail, fmt.Sprintf("add min-ttl=%v to the store's URL", least)
	}
	report(item)
}

// consulSaid is what Consul answered, in one line.
func consulSaid(err error) string {
	if status, ok := errors.AsType[api.StatusError](err); ok {
		return fmt.Sprintf("%d %s", status.Code, strings.TrimSpace(status.Body))
	}
	return shortly(err)
}

// lastReply is a transport that keeps when its last request was sent, what it took and what the service's clock said.
type lastReply struct {
	next http.RoundTripper
	mu   sync.Mutex
	sent time.Time
	took time.Duration
	date time.Time
}

func (l *lastReply) around(next http.RoundTripper) http.RoundTripper {
	l.next = next
	return l
}

// RoundTrip implements http.RoundTripper.
func (l *lastReply) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	resp, err := l.next.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.took = sent, max(time.Since(sent), 1)
	if err == nil {
		l.date, _ = http.ParseTime(resp.Header.Get("Date"))
	}
	return resp, err
}
