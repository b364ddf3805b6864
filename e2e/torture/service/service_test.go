//go:build unix

package service_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
	"github.com/cloudlease/cloudlease/e2e/torture/service"
	"github.com/cloudlease/cloudlease/lease"
)

var names = []string{"dynamodb", "azblob", "consul"}

func find(t *testing.T, name string) service.Service {
	t.Helper()
	s, err := service.Find(name)
	require.NoError(t, err)
	require.Equal(t, name, s.Name())
	return s
}

func TestFind(t *testing.T) {
	for _, name := range names {
		s := find(t, name)
		require.GreaterOrEqual(t, s.Bound(), 2*s.TTL(), name)
	}
	_, err := service.Find("etcd")
	require.ErrorContains(t, err, "use one of dynamodb, azblob, consul")
}

// failing is a service that does nothing but fail, and remembers what it was asked.
type failing struct {
	service.Service

	kind proxy.Kind

	mu   sync.Mutex
	seen []proxy.Request
}

func (f *failing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f.mu.Lock()
	f.seen = append(f.seen, f.Classify(r, body))
	f.mu.Unlock()
	a := f.Answer(f.kind, r)
	maps.Copy(w.Header(), a.Header)
	w.WriteHeader(a.Status)
	_, _ = io.WriteString(w, a.Body)
}

// calls are an acquire, a guarded write and a guarded read.
func calls(s service.Service) []func(context.Context, service.Opened) error {
	return []func(context.Context, service.Opened) error{
		func(ctx context.Context, o service.Opened) error {
			_, err := o.Store.TryAcquire(ctx, lease.Request{
				Name: "lock", Holder: "w", TTL: s.TTL(), Attempt: "attempt", Since: lease.SystemClock(),
			})
			return err
		},
		func(ctx context.Context, o service.Opened) error {
			return o.Guard.Put(ctx, "lock", []byte("v"), 1, "w")
		},
		func(ctx context.Context, o service.Opened) error {
			_, err := o.Guard.Get(ctx, "lock")
			return err
		},
	}
}

// Requests are told apart. What the proxy answers in the service's name is understood as a failure of the service.
func TestRequestsAndAnswers(t *testing.T) {
	for name, want := range map[string][]string{
		"dynamodb": {"locks.GetItem", "guarded.UpdateItem", "guarded.GetItem"},
		"azblob":   {"locks.HEAD", "guarded.PUT", "guarded.GET"},
		"consul":   {"session.PUT create", "guarded.PUT txn", "guarded.PUT txn read"},
	} {
		for _, kind := range []proxy.Kind{proxy.Fail, proxy.Throttle} {
			t.Run(name+" "+string(kind), func(t *testing.T) {
				f := &failing{Service: find(t, name), kind: kind}
				server := httptest.NewServer(f)
				defer server.Close()
				o, err := f.Open(server.URL, nil)
				require.NoError(t, err)
				defer o.Close()
				for i, call := range calls(f.Service) {
					f.seen = nil
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					err := call(ctx, o)
					cancel()
					require.True(t, errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrInDoubt), "%v", err)
					require.Equal(t, want[i], f.seen[0].Op)
					require.False(t, f.seen[0].Repeatable && f.seen[0].Op[:5] != "locks", "%v", f.seen[0])
				}
			})
		}
	}
}

// A transaction of Consul that only reads is a read, and may be stale unless it says otherwise.
func TestConsulReads(t *testing.T) {
	const get, lock = `[{"KV":{"Verb":"get-tree","Key":"a"}}]`, `[{"KV":{"Verb":"lock","Key":"a"}},{"KV":{"Verb":"get-tree","Key":"a"}}]`
	for _, c := range []struct {
		method, url, body string
		read, consistent  bool
	}{
		{http.MethodPut, "/v1/txn", get, true, false},
		{http.MethodPut, "/v1/txn?consistent", get, true, true},
		{http.MethodPut, "/v1/txn", lock, false, false},
		{http.MethodGet, "/v1/kv/a?index=7", "", true, false},
		{http.MethodGet, "/v1/kv/a?consistent=", "", true, true},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1"+c.url, http.NoBody)
		got := service.Consul{}.Classify(r, []byte(c.body))
		require.Equal(t, c.read, got.Read, c.url)
		require.Equal(t, c.consistent, got.Consistent, c.url)
		require.Equal(t, !c.read, got.Repeatable, c.url)
	}
}

func TestTable(t *testing.T) {
	in := service.Table("payments", "day", "id")
	require.Len(t, in.KeySchema, 2)
	require.Len(t, in.AttributeDefinitions, 2)
}
