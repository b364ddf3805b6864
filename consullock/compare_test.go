package consullock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// canned is an agent that knows its answers by heart: every transaction is done, and what is read in one that locks is a lock that
// was released before. last is the newest index.
type canned struct{ last atomic.Uint64 }

const (
	cannedSession = "5c8a2ad2-6f0b-4d5c-9f0e-3a5b8a1c7d42"
	cannedRenewal = `[{"ID":"` + cannedSession + `","Name":"n","Node":"a","LockDelay":30000000000,"Behavior":"release","TTL":"30s",` +
		`"NodeChecks":[],"ServiceChecks":null,"CreateIndex":11,"ModifyIndex":11}]`
	cannedKey = `{"KV":{"LockIndex":3,"Key":"cloudlease/locks/x/%s","Flags":0,"Value":%s,"CreateIndex":12,"ModifyIndex":%d}}`

	cannedLock  = `"eyJhdHRlbXB0IjoiYXR0ZW1wdC1vZmYiLCJmcmVlZCI6dHJ1ZSwidG9rZW4iOjd9"`                                             // {"attempt":"attempt-off","freed":true,"token":7}
	cannedGrant = `"eyJhdHRlbXB0IjoiYXR0ZW1wdC1vZmYiLCJob2xkZXIiOiJtZSIsInNpbmNlIjoxNzAwMDAwMDAwMDAwLCJsb2NrZGVsYXkiOjMwMDAwfQ=="` // its holder and its beginning
)

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	switch in := string(body); {
	case strings.HasSuffix(r.URL.Path, "/session/create"):
		_, _ = io.WriteString(w, `{"ID":"`+cannedSession+`"}`)
	case strings.Contains(r.URL.Path, "/session/renew/"):
		_, _ = io.WriteString(w, cannedRenewal)
	case strings.Contains(in, `"get-tree"`):
		at := c.last.Add(2)
		_, _ = fmt.Fprintf(w, `{"Results":[`+cannedKey+","+cannedKey+","+cannedKey+","+cannedKey+`],"Errors":null}`,
			"grant", cannedGrant, 7, "lock", cannedLock, 8, "lock", "null", at, "grant", "null", at)
	case strings.Contains(in, `"unlock"`):
		at := c.last.Add(2)
		_, _ = fmt.Fprintf(w, `{"Results":[`+cannedKey+","+cannedKey+`],"Errors":null}`, "lock", "null", at-1, "lock", "null", at)
	default:
		_, _ = fmt.Fprintf(w, `{"Results":[`+cannedKey+`],"Errors":null}`, "lock", "null", c.last.Load())
	}
}

// bare is the SDK alone.
type bare struct {
	*api.Client
	held uint64
}

func (x *bare) txn(ctx context.Context, ops api.TxnOps, q api.QueryOptions) (api.TxnResults, error) {
	done, resp, _, err := x.Txn().Txn(ops, q.WithContext(ctx))
	if err == nil && !done {
		err = errors.New("refused")
	}
	if err != nil {
		return nil, err
	}
	return resp.Results, nil
}

func op(verb api.KVOp, key string) *api.TxnOp {
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: verb, Key: "cloudlease/" + key}}
}

func (x *bare) locked(verb api.KVOp, key, value string) *api.TxnOp {
	o := op(verb, key)
	o.KV.Session, o.KV.Value = cannedSession, []byte(value)
	return o
}

func (x *bare) unchanged() *api.TxnOp {
	o := op(api.KVCheckIndex, "locks/x/lock")
	o.KV.Index = x.held
	return o
}

// least is the least that locks and unlocks: nobody is named, nothing is read, and there is no token.
func (x *bare) least(ctx context.Context) error {
	_, err := x.txn(ctx, api.TxnOps{x.locked(api.KVLock, "locks/x/lock", "me")}, api.QueryOptions{})
	if err != nil {
		return err
	}
	_, err = x.txn(ctx, api.TxnOps{x.locked(api.KVUnlock, "locks/x/lock", "")}, api.QueryOptions{})
	return err
}

// same sends what the store sends, byte for byte but for the numbers in it.
func (x *bare) same(ctx context.Context) error {
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	set := op(api.KVSet, "locks/x/grant")
	set.KV.Value = []byte(`{"attempt":"attempt-id","holder":"me","since":` + now + `,"lockdelay":30000}`)
	got, err := x.txn(ctx, api.TxnOps{
		op(api.KVGetTree, "locks/x/"), op(api.KVGetTree, "floors/x/"),
		x.locked(api.KVLock, "locks/x/lock", `{"attempt":"attempt-id","since":`+now+`}`), set,
	}, api.QueryOptions{})
	if err != nil {
		return err
	}
	x.held = got[2].KV.ModifyIndex
	token := strconv.FormatUint(got[3].KV.ModifyIndex, 10)
	_, err = x.txn(ctx, api.TxnOps{
		x.unchanged(), x.locked(api.KVUnlock, "locks/x/lock", `{"attempt":"attempt-id","freed":true,"token":`+token+`}`),
	}, api.QueryOptions{})
	return err
}

// renew is a renewal of the session and a look at the key, one after the other.
func (x *bare) renew(ctx context.Context) error {
	if _, _, err := x.Session().Renew(cannedSession, new(api.WriteOptions{}).WithContext(ctx)); err != nil {
		return err
	}
	_, err := x.txn(ctx, api.TxnOps{x.unchanged()}, api.QueryOptions{RequireConsistent: true})
	return err
}

func newComparison(t testing.TB, wrap func(http.RoundTripper) http.RoundTripper) (*consullock.Store, *bare) {
	t.Helper()
	agent := &canned{}
	agent.last.Store(100)
	wire := emulator.Transport(agent, nil)
	if wrap != nil {
		wire = wrap(wire)
	}
	cfg := configAt("consul.invalid:8500", wire)
	raw, err := api.NewClient(cfg)
	require.NoError(t, err)
	return newStore(t, cfg, consullock.Options{}), &bare{raw, 8}
}

func compared(name string) lease.Request {
	r := request(name)
	r.TTL = 30 * time.Second
	return r
}

// BenchmarkAcquireRelease beside the SDK, with the same transactions and with the least that locks.
func BenchmarkAcquireRelease(b *testing.B) {
	st, raw := newComparison(b, nil)
	c, err := lease.New(st, &lease.Options{Holder: "me", Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close(context.Background())) })
	once := func(ctx context.Context) error {
		g, err := st.TryAcquire(ctx, compared("x"))
		if err != nil {
			return err
		}
		return st.Release(ctx, g, lease.Final{})
	}
	require.NoError(b, once(b.Context())) // warm: it has its session
	leasetest.Compare(b,
		leasetest.Way{Name: "least", Do: raw.least},
		leasetest.Way{Name: "bare", Do: raw.same},
		leasetest.Way{Name: "store", Do: once},
		leasetest.Way{Name: "client", Do: func(ctx context.Context) error {
			l, err := c.TryAcquire(ctx, "x")
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}},
	)
}

// BenchmarkRenew is a round of one lease: both requests at once, beside the same two of the SDK one after the other.
func BenchmarkRenew(b *testing.B) {
	st, raw := newComparison(b, nil)
	g, err := st.TryAcquire(b.Context(), compared("x"))
	require.NoError(b, err)
	leasetest.Compare(b,
		leasetest.Way{Name: "bare", Do: raw.renew},
		leasetest.Way{Name: "store", Do: func(ctx context.Context) error { g, err = st.Renew(ctx, g); return err }},
	)
	require.NoError(b, st.Release(b.Context(), g, lease.Final{}))
}

// TestComparedAlike: what is compared sends the same transactions, but for the numbers in them.
func TestComparedAlike(t *testing.T) {
	numbers := regexp.MustCompile(`[0-9]{3,}`)
	var sent []string
	st, raw := newComparison(t, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/txn") {
				return next.RoundTrip(r)
			}
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			var ops []struct {
				KV struct {
					Verb, Key, Session string
					Value              []byte
				}
			}
			require.NoError(t, json.Unmarshal(body, &ops))
			text := r.Method + " " + r.URL.String()
			for _, op := range ops {
				text += fmt.Sprintln("", op.KV.Verb, op.KV.Key, op.KV.Session, string(op.KV.Value))
			}
			sent = append(sent, numbers.ReplaceAllString(text, "N"))
			r.Body = io.NopCloser(bytes.NewReader(body))
			return next.RoundTrip(r)
		})
	})
	g, err := st.TryAcquire(t.Context(), compared("x")) // learns the service's time
	require.NoError(t, err)
	require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
	sent = nil
	g, err = st.TryAcquire(t.Context(), compared("x"))
	require.NoError(t, err)
	require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
	store := sent
	sent = nil
	require.NoError(t, raw.same(t.Context()))
	require.Equal(t, store, sent)
	require.Len(t, sent, 2)
}
