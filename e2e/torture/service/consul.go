//go:build unix

package service

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
	"github.com/cloudlease/cloudlease/lease"
)

// Consul is consullock on a server of its own.
type Consul struct{}

// Name implements Service.
func (Consul) Name() string { return "consul" }

// TTL implements Service: a server that is killed has to be back before sessions end.
func (Consul) TTL() time.Duration { return 4 * time.Second }

// Bound implements Service: the lock-delay, which is the TTL, comes on top.
func (c Consul) Bound() time.Duration { return 3*c.TTL() + 3*time.Second }

// Durable implements Service.
func (Consul) Durable() bool { return true }

// Anew implements Service: a new leader gives every session its whole time.
func (Consul) Anew() bool { return true }

// Kinds implements Service. Reads that do not ask for consistency are stale at times: for a moment after an election, or from an
// agent whose server is cut off.
func (Consul) Kinds() []proxy.Kind { return append(network(), proxy.WrongDate, proxy.StaleRead) }

// consulToken is what the clients show. Nothing depends on it, because the server has no ACLs.
const consulToken = "0b6f9a52-7c1d-4e0e-9d31-5a1f0c2e7b48" //nolint:gosec // made up

// consul is the configuration of a client.
func consul(url string, wire *http.Transport) *api.Config {
	return &api.Config{Address: url, HttpClient: &http.Client{Transport: wire}, Token: consulToken}
}

// Prepare implements Service: a session can be made once the server leads.
func (Consul) Prepare(ctx context.Context, url string) error { return consulReady(ctx, url) }

// consulReady waits until the server at url can make a session.
func consulReady(ctx context.Context, url string) error {
	wire := &http.Transport{}
	defer wire.CloseIdleConnections()
	client, err := api.NewClient(consul(url, wire))
	if err != nil {
		return err
	}
	q := (&api.WriteOptions{}).WithContext(ctx)
	for {
		id, _, err := client.Session().Create(&api.SessionEntry{TTL: "10s"}, q)
		if err == nil {
			_, err = client.Session().Destroy(id, q)
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for Consul: %w; its last answer: %w", context.Cause(ctx), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Open implements Service.
func (c Consul) Open(url string, clock lease.Clock) (Opened, error) {
	wire := &http.Transport{MaxIdleConnsPerHost: 16}
	s, err := consullock.New(consul(url, wire), &consullock.Options{MinTTL: time.Second, Clock: clock})
	if err != nil {
		return Opened{}, err
	}
	g, err := consullock.NewGuard(consul(url, wire), &consullock.GuardOptions{Clock: clock})
	return Opened{Store: s, Guard: g, Close: wire.CloseIdleConnections}, err
}

// Leftovers implements Service: locks that are not free, and sessions.
func (c Consul) Leftovers(ctx context.Context, url string) ([]string, error) {
	o, err := c.Open(url, nil)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	left, err := locked(ctx, o.Store)
	if err != nil {
		return nil, err
	}
	wire := &http.Transport{}
	defer wire.CloseIdleConnections()
	client, err := api.NewClient(consul(url, wire))
	if err != nil {
		return nil, err
	}
	sessions, _, err := client.Session().List((&api.QueryOptions{}).WithContext(ctx))
	for _, s := range sessions {
		left = append(left, fmt.Sprintf("session of %s", s.Name))
	}
	return left, err
}

// Classify implements proxy.Service.
func (Consul) Classify(r *http.Request, body []byte) proxy.Request {
	_, op, _ := strings.Cut(r.URL.Path, "/v1/")
	what := "locks"
	if strings.Contains(r.URL.Path, "/guarded/") || bytes.Contains(body, []byte("/guarded/")) {
		what = "guarded"
	}
	verb, rest, _ := strings.Cut(op, "/")
	if verb == "session" {
		what = "session"
		verb, _, _ = strings.Cut(rest, "/")
	}
	read := r.Method == http.MethodGet || verb == "txn" && onlyReads(body)
	if read {
		verb += " read"
	}
	return proxy.Request{
		Op: fmt.Sprintf("%s.%s %s", what, r.Method, verb), Key: r.URL.Path + " " + string(body), Shown: shown(r.URL.Path, body), Read: read,
		Consistent: r.URL.Query().Has("consistent"),
		// A session that is made twice leaves one behind that nobody knows.
		Repeatable: !read && what != "guarded" && verb != "create",
	}
}

// SecretKinds implements Service.
func (Consul) SecretKinds() []string { return []string{session, attempt, aclToken} }

// Credentials implements Service: the only one is shown in every request.
func (Consul) Credentials() []string { return nil }

// Secrets implements proxy.Service.
func (Consul) Secrets(m proxy.Message, found func(kind, secret string)) {
	found(aclToken, m.Header.Get("X-Consul-Token"))
	found(session, sessionOf(m.URL.Path))
	for name, text := range texts(m.Body) {
		switch name {
		case "Session", "ID":
			found(session, text)
		case "Value":
			note, _ := base64.StdEncoding.DecodeString(text)
			for name, text := range texts(note) {
				if name == "attempt" {
					found(attempt, text)
				}
			}
		}
	}
}

// sessionOf is the session that a path names.
func sessionOf(path string) string {
	for _, verb := range []string{"renew/", "destroy/", "info/"} {
		if id, ok := strings.CutPrefix(path, "/v1/session/"+verb); ok {
			return id
		}
	}
	return ""
}

// shown is what a log tells of a request: neither its session nor the values that it writes.
func shown(path string, body []byte) string {
	if id := sessionOf(path); id != "" {
		path = strings.TrimSuffix(path, id)
	}
	words := []string{path}
	var ops []struct{ KV struct{ Verb, Key string } }
	_ = json.Unmarshal(body, &ops) // it is a transaction, or there is nothing to add
	for _, op := range ops {
		words = append(words, op.KV.Verb, op.KV.Key)
	}
	return strings.Join(words, " ")
}

// onlyReads tells whether a transaction changes nothing.
func onlyReads(body []byte) bool {
	var ops []struct{ KV struct{ Verb string } }
	if err := json.Unmarshal(body, &ops); err != nil {
		return false
	}
	for _, op := range ops {
		if !strings.HasPrefix(op.KV.Verb, "get") && !strings.HasPrefix(op.KV.Verb, "check") {
			return false
		}
	}
	return true
}

// Answer implements proxy.Service.
func (Consul) Answer(kind proxy.Kind, _ *http.Request) proxy.Answer {
	if kind == proxy.Throttle {
		return proxy.Answer{Status: http.StatusTooManyRequests, Body: "made by the fault proxy: rate limit exceeded"}
	}
	return proxy.Answer{Status: http.StatusInternalServerError, Body: "made by the fault proxy: no cluster leader"}
}
