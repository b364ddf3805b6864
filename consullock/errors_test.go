package consullock_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// TestErrors: what the service, or something before it, answers has a class, a hint where one helps, and shows no session.
func TestErrors(t *testing.T) {
	for text, want := range map[string]struct {
		status int
		class  error
		hint   string
	}{
		"No cluster leader":                         {500, lease.ErrUnavailable, ""},
		"rpc error making call: EOF":                {500, lease.ErrInDoubt, ""},
		"bad gateway":                               {502, lease.ErrInDoubt, ""},
		"Your IP is issuing too many requests":      {429, lease.ErrUnavailable, ""},
		"<html>nothing here</html>":                 {404, lease.ErrMisconfigured, "check that the address is that of a Consul agent"},
		"ACL not found":                             {403, lease.ErrDenied, "key_prefix"},
		"No path to datacenter":                     {500, lease.ErrMisconfigured, "datacenter's name"},
		"rpc error making call: Permission denied":  {500, lease.ErrDenied, "key_prefix"},
		"method not allowed by a proxy in between":  {405, lease.ErrMisconfigured, "Consul agent"},
		"rpc error making call: Too many requests,": {500, lease.ErrUnavailable, "http_max_conns_per_client"},
	} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(consulfake.Options{})
				broken := false
				st := newStore(t, s.config(func(next http.RoundTripper) http.RoundTripper {
					return roundTripper(func(r *http.Request) (*http.Response, error) {
						if broken {
							return answer(r, want.status, text+" "+r.URL.Path), nil
						}
						return next.RoundTrip(r)
					})
				}), consullock.Options{})
				g, err := st.TryAcquire(t.Context(), request("x"))
				require.NoError(t, err)
				broken = true
				_, err = st.TryAcquire(t.Context(), request("y"))
				requireClass(t, err, want.class)
				require.ErrorContains(t, err, want.hint)
				require.ErrorContains(t, err, `acquire "y" on Consul cloudlease`)
				time.Sleep(ttl / 3)
				_, err = st.Renew(t.Context(), g)
				require.Error(t, err)
				require.NotContains(t, err.Error(), s.Sessions()[0].ID)
				require.NotErrorIs(t, err, lease.ErrLost)
				broken = false
				_, err = st.Renew(t.Context(), g)
				require.NoError(t, err)
				require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
				require.NoError(t, st.Close(t.Context()))
			})
		})
	}
}

// TestNobodyListens is told at once, and is no doubt.
func TestNobodyListens(t *testing.T) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	st := newStore(t, configAt("127.0.0.1:1", transport), consullock.Options{})
	_, err := st.TryAcquire(t.Context(), request("x"))
	requireClass(t, err, lease.ErrUnavailable)
	require.ErrorContains(t, err, "check the agent's address")
}

// TestOptions: bad ones are told before anything is sent.
func TestOptions(t *testing.T) {
	for name, o := range map[string]consullock.Options{
		"prefix without an end": {Prefix: "locks"}, "prefix with a dot": {Prefix: "a.b/"}, "absolute prefix": {Prefix: "/a/"},
		"long lock-delay": {LockDelay: 2 * time.Minute}, "least TTL": {MinTTL: -1}, "node": {Node: "a\"b"},
	} {
		_, err := consullock.New(configAt("127.0.0.1:1", http.DefaultTransport), &o)
		require.ErrorIs(t, err, lease.ErrInvalid, name)
	}
}

// TestClosed: a store that was closed makes no more sessions.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		st := s.host(t, consullock.Options{}).Store
		require.NoError(t, st.Close(t.Context()))
		_, err := st.TryAcquire(t.Context(), request("x"))
		require.ErrorIs(t, err, lease.ErrClosed)
		require.Empty(t, s.Sessions())
	})
}

// TestNoIDInErrors: whatever stands around the ids that an answer repeats, they are taken out, and nothing else.
func TestNoIDInErrors(t *testing.T) {
	ids := regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
	const id = "5C8a2ad2-6f0b-4d5c-9f0e-3a5b8a1c7d42"
	said := ""
	st := newStore(t, configAt("consul.invalid:8500", roundTripper(func(r *http.Request) (*http.Response, error) {
		return answer(r, http.StatusInternalServerError, said), nil
	})), consullock.Options{})
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{id, id, id[:35], id[1:], id[:8], "-", "a", "g", "0f", " ", "\xff", "é"})
		said = "x" + strings.Join(rapid.SliceOf(part).Draw(t, "said"), "") + "x"
		_, err := st.Inspect(context.Background(), "x")
		require.ErrorContains(t, err, ids.ReplaceAllString(said, "<id>"))
	})
}

// TestRefusedRenewalEndsItsLook: a round whose renewal was refused does not wait for its look at the keys, which hangs.
func TestRefusedRenewalEndsItsLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(consulfake.Options{})
		broken := false
		st := newStore(t, s.config(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				switch word(r) {
				case "renew":
					if broken {
						return answer(r, http.StatusForbidden, "Permission denied"), nil
					}
				case "txn":
					if broken {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
				}
				return next.RoundTrip(r)
			})
		}), consullock.Options{})
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		time.Sleep(ttl / 3)
		broken = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err = st.Renew(ctx, g)
		require.ErrorIs(t, err, lease.ErrDenied)
		require.Zero(t, time.Since(began))
		broken = false
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Close(t.Context()))
	})
}
