package consullock_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// TestCO05_KeyDeleted: by its key and by its folder.
func TestCO05_KeyDeleted(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		for name, remove := range map[string]func() error{
			"key": func() error { _, err := w.root.KV().Delete(w.key("key"), nil); return err },
			"folder": func() error {
				_, err := w.root.KV().DeleteTree(w.prefix+"locks/folder/", nil)
				return err
			},
		} {
			a, b := w.client(t, lease.Options{}, nil), w.client(t, lease.Options{}, nil)
			var l *lease.Lease
			for range 3 {
				if l != nil {
					require.NoError(t, l.Release(t.Context()))
				}
				l = acquire(t, a, name)
			}
			time.Sleep(1500 * time.Millisecond)
			require.NoError(t, remove())
			next := acquire(t, b, name)
			awaitLoss(t, l, 2*time.Second)
			require.Greater(t, next.Token(), l.Token(), "although the lock's counter began anew")
			pair, _, err := w.root.KV().Get(w.key(name), nil)
			require.NoError(t, err)
			require.EqualValues(t, 1, pair.LockIndex)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
			require.NoError(t, next.Err())
			info, err := b.Inspect(t.Context(), name)
			require.NoError(t, err)
			require.Equal(t, lease.Held, info.State)
			require.Equal(t, next.Token(), info.Token)
			require.NoError(t, next.Release(t.Context()))
		}
	})
}

// indexes changes what the answers to blocking queries say.
type indexes struct {
	mu     sync.Mutex
	change func(n int, r *http.Request, h http.Header) (at time.Duration)
	n      int
}

func (x *indexes) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, "/v1/kv/") {
			return next.RoundTrip(r)
		}
		x.mu.Lock()
		x.n++
		n, change := x.n, x.change
		x.mu.Unlock()
		h := http.Header{}
		at := change(n, r, h)
		if at > 0 { // answered without news
			q := r.URL.Query()
			q.Set("wait", at.String())
			r = r.Clone(r.Context())
			r.URL.RawQuery = q.Encode()
		}
		resp, err := next.RoundTrip(r)
		if err == nil {
			for k := range h {
				resp.Header[k] = h[k]
			}
		}
		return resp, err
	})
}

// TestCO06_IndexGoesBackwards, or nothing blocks.
func TestCO06_IndexGoesBackwards(t *testing.T) {
	for name, change := range map[string]func(n int, r *http.Request, h http.Header) time.Duration{
		"back, then 0, then none": func(n int, _ *http.Request, h http.Header) time.Duration {
			switch {
			case n < 2:
				h["X-Consul-Index"] = []string{"500"}
			case n < 4:
				h["X-Consul-Index"] = []string{"20"}
			case n < 6:
				h["X-Consul-Index"] = []string{"0"}
			default:
				h["X-Consul-Index"] = nil
			}
			return 0
		},
		"500 for ever": func(_ int, _ *http.Request, h http.Header) time.Duration {
			h["X-Consul-Index"] = []string{"500"}
			return time.Second
		},
		"ends after 55 s": func(int, *http.Request, http.Header) time.Duration { return 55 * time.Second },
		"at once, unchanged": func(int, *http.Request, http.Header) time.Duration {
			return time.Nanosecond
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(consulfake.Options{})
				a := s.host(t, consullock.Options{}).client(t, nil)
				l := acquire(t, a, "x")
				x, sent := &indexes{change: change}, &counter{}
				b := clientOf(t, newStore(t, s.config(func(next http.RoundTripper) http.RoundTripper { return sent.wrap(x.wrap(next)) }), consullock.Options{}), nil)
				time.AfterFunc(200*time.Second, func() { require.NoError(t, l.Release(context.Background())) })
				began := time.Now()
				next, err := b.Acquire(t.Context(), "x")
				require.NoError(t, err)
				require.Less(t, time.Since(began), 202*time.Second)
				var asked []time.Time
				for i, word := range sent.sent {
					if word != "create" && word != "renew" { // once in a TTL and a half
						asked = append(asked, sent.at[i])
					}
				}
				for i := 2; i < len(asked); i++ {
					if asked[i-2].Sub(began) > 0 && time.Since(asked[i]) > 2*time.Second {
						require.GreaterOrEqual(t, asked[i].Sub(asked[i-2]), time.Second, "more than two requests in a second")
					}
				}
				require.NoError(t, next.Release(t.Context()))
				require.NoError(t, a.Close(t.Context()))
				require.NoError(t, b.Close(t.Context()))
			})
		})
	}
}

// TestCO07_Rules: each missing rule is named, every request carries the token, and nothing is left behind.
func TestCO07_Rules(t *testing.T) {
	const all, none, noKeys, readOnly = "secret-of-all-rights", "secret-of-none", "secret-without-keys", "secret-that-reads"
	session := map[string]string{"agent": "write"}
	policies := map[string]consulfake.Policy{
		all:      {Sessions: session, Keys: map[string]string{"cloudlease/": "write"}},
		none:     {Keys: map[string]string{"cloudlease/": "write"}},
		noKeys:   {Sessions: session},
		readOnly: {Sessions: session, Keys: map[string]string{"cloudlease/": "read"}},
	}
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{Policies: policies})
		host := func(token string) (*lease.Client, *counter) {
			sent := &counter{}
			cfg := s.config(sent.wrap)
			cfg.Token = token
			return clientOf(t, newStore(t, cfg, consullock.Options{}), nil), sent
		}
		a, _ := host(all)
		l := acquire(t, a, "held")
		for token, rule := range map[string]string{
			none: `session "<name of the agent's node>" { policy = "write" }`, noKeys: `key_prefix "cloudlease/" { policy = "write" }`,
			readOnly: `key_prefix "cloudlease/" { policy = "write" }`,
		} {
			c, sent := host(token)
			began := time.Now()
			_, err := c.TryAcquire(t.Context(), "x")
			requireClass(t, err, lease.ErrDenied)
			require.ErrorContains(t, err, rule)
			require.NotContains(t, err.Error(), token)
			require.Less(t, time.Since(began), 2*time.Second)
			require.Len(t, s.Sessions(), 1, "the session that was made on the way is destroyed")
			for _, r := range sent.all {
				require.Equal(t, token, r.Header.Get("X-Consul-Token"))
			}
			_, err = c.Inspect(t.Context(), "held")
			if token == noKeys {
				requireClass(t, err, lease.ErrDenied)
				require.ErrorContains(t, err, `key_prefix "cloudlease/" { policy = "read" }`)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, c.Close(t.Context()))
		}
		s.Revoke(all) // in mid-hold
		awaitLoss(t, l, ttl)
		_ = a.Close(t.Context())
	})
}

// TestCO07_RulesOfAnAgent are those of a real one.
func TestCO07_RulesOfAnAgent(t *testing.T) {
	if !engines() {
		return
	}
	a, err := shared()
	require.NoError(t, err)
	t.Parallel()
	prefix := newReal(t, a, consullock.Options{}).opt.Prefix
	for rules, want := range map[string]string{
		`key_prefix "cloudlease/" { policy = "write" }`:                                  `session "<name of the agent's node>"`,
		`session "web-1" { policy = "write" }`:                                           `key_prefix "` + prefix + `" { policy = "write" }`,
		`session "web-1" { policy = "write" } key_prefix "cloudlease/" { policy="read"}`: `key_prefix "` + prefix + `" { policy = "write" }`,
	} {
		token, err := a.tokenFor(t.Context(), rules)
		require.NoError(t, err)
		cfg := a.config(t, nil)
		cfg.Token = token
		st := newStore(t, cfg, consullock.Options{Prefix: prefix})
		_, err = st.TryAcquire(t.Context(), request("x"))
		requireClass(t, err, lease.ErrDenied)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), token)
		_, err = st.Inspect(t.Context(), "x")
		if strings.Contains(rules, "key_prefix") {
			require.NoError(t, err)
		} else {
			requireClass(t, err, lease.ErrDenied)
		}
		require.NoError(t, st.Close(t.Context()))
	}
	var sessions []struct{ Name string }
	require.NoError(t, emulator.ConsulCall(t.Context(), a.ports, rootToken, http.MethodGet, "/v1/session/list", "", &sessions))
	for _, s := range sessions {
		require.NotContains(t, s.Name, "locks in "+prefix)
	}
}
