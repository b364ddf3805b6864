package consullock

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// connect makes a client whose answers pass through wire. own is its HTTP client if the configuration did not bring one.
func connect(cfg *api.Config, clock lease.Clock, observe func(lease.Reading, http.Header)) (client *api.Client, own *http.Client, used api.Config, err error) {
	if cfg == nil {
		cfg = api.DefaultConfig()
	}
	c := *cfg
	if _, err := api.NewClient(&c); err != nil { // it fills in c.HttpClient, with the TLS settings and the socket of c
		return nil, nil, c, lease.Invalid("configure", "", "the client's configuration: %w", err)
	}
	if strings.LastIndex(c.Address, "@") > 0 && !strings.HasPrefix(c.Address, "/") { // errors of connections repeat it
		return nil, nil, c, lease.Invalid("configure", "", "the agent's address has a user or a password in it: they go into the configuration's HttpAuth")
	}
	if cfg.HttpClient == nil {
		own = c.HttpClient
	}
	wrapped := *c.HttpClient
	next := wrapped.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	wrapped.Transport = &wire{next: next, clock: clock, observe: observe}
	c.HttpClient = &wrapped
	client, err = api.NewClient(&c)
	return client, own, c, err
}

// wire stands between the SDK and the network. It shows the answers' headers to observe, and turns failures into errors that
// keep their status, which the SDK leaves out of some of its own.
type wire struct {
	next    http.RoundTripper
	clock   lease.Clock
	observe func(sent lease.Reading, h http.Header)
}

// maxRefusal bounds what is read of a failure's text.
const maxRefusal = 4 << 10

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := w.clock()
	resp, err := w.next.RoundTrip(req)
	if err != nil || resp == nil { // the caller complains of the latter
		return resp, err
	}
	if w.observe != nil {
		w.observe(sent, resp.Header)
	}
	switch path := req.URL.Path; {
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusConflict && strings.HasSuffix(path, "/v1/txn"):
		return resp, nil
	case resp.StatusCode == http.StatusNotFound && strings.Contains(path, "/v1/kv/") && resp.Header.Get("X-Consul-Index") != "":
		return resp, nil // there is no such key
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // a text that is cut off is worth as much
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound && strings.Contains(req.URL.Path, "/v1/session/renew/") && bytes.Contains(text, []byte("Session id")) {
		resp.Body = io.NopCloser(bytes.NewReader(text)) // there is no such session; a 404 of something in between proves nothing
		return resp, nil
	}
	return nil, &statusError{resp.StatusCode, strings.TrimSpace(string(text))}
}

// statusError is a failure that the service, or something before it, answered with.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d %s", e.code, e.text) }

func query(ctx context.Context) *api.QueryOptions { return new(api.QueryOptions{}).WithContext(ctx) }

// consistent is for reads that decide: a server that was just restarted, or believes that it leads, answers others from the past.
func consistent(ctx context.Context) *api.QueryOptions {
	q := query(ctx)
	q.RequireConsistent = true
	return q
}

func write(ctx context.Context) *api.WriteOptions { return new(api.WriteOptions{}).WithContext(ctx) }

// maxOps is how many operations every Consul takes in one transaction; newer ones take twice as many.
const maxOps = 64

// txn sends one transaction that writes, which is as consistent as can be whatever its options say. Either it was done, or refused
// tells by operation why not; an error is neither.
func (s *Store) txn(ctx context.Context, ops api.TxnOps) (results api.TxnResults, refused api.TxnErrors, err error) {
	return s.send(ctx, ops, query(ctx))
}

// reads sends one transaction that only reads, and decides. Its results are those of txn.
func (s *Store) reads(ctx context.Context, ops api.TxnOps) (results api.TxnResults, refused api.TxnErrors, err error) {
	return s.send(ctx, ops, consistent(ctx))
}

func (s *Store) send(ctx context.Context, ops api.TxnOps, q *api.QueryOptions) (api.TxnResults, api.TxnErrors, error) {
	if err := storeerr.Sendable(ctx); err != nil {
		return nil, nil, err
	}
	done, resp, _, err := s.api.Txn().Txn(ops, q)
	switch {
	case err != nil:
		return nil, nil, err
	case !done && len(resp.Errors) == 0:
		return nil, nil, fmt.Errorf("the transaction was refused without a reason")
	case !done:
		return nil, resp.Errors, nil
	}
	return resp.Results, nil, nil
}

// pairsOf are the keys among the results of a transaction.
func pairsOf(results api.TxnResults) []*api.KVPair {
	pairs := make([]*api.KVPair, 0, len(results))
	for _, r := range results {
		if r.KV != nil {
			pairs = append(pairs, r.KV)
		}
	}
	return pairs
}

func kvOp(verb api.KVOp, key string) *api.TxnOp {
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: verb, Key: key}}
}

func opTree(prefix string) *api.TxnOp { return kvOp(api.KVGetTree, prefix) }

func opSet(key string, value []byte) *api.TxnOp {
	op := kvOp(api.KVSet, key)
	op.KV.Value = value
	return op
}

func opLock(key, session string, value []byte) *api.TxnOp {
	op := kvOp(api.KVLock, key)
	op.KV.Session, op.KV.Value = session, value
	return op
}

func opUnlock(key, session string, value []byte) *api.TxnOp {
	op := opLock(key, session, value)
	op.KV.Verb = api.KVUnlock
	return op
}

func opCheckSession(key, session string) *api.TxnOp {
	op := kvOp(api.KVCheckSession, key)
	op.KV.Session = session
	return op
}

// opUnchanged passes while key has this index; 0 means that there is no such key.
func opUnchanged(key string, index uint64) *api.TxnOp {
	if index == 0 {
		return kvOp(api.KVCheckNotExists, key)
	}
	op := kvOp(api.KVCheckIndex, key)
	op.KV.Index = index
	return op
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
