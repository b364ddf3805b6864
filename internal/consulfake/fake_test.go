package consulfake_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// onBoth runs a check on the fake, in virtual time, and on an agent if that is asked for.
func onBoth(t *testing.T, check func(t *testing.T, c *api.Client)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := consulfake.New(&consulfake.Options{MinTTL: time.Second})
			check(t, client(t, "consul.invalid", emulator.Transport(s, nil)))
		})
	})
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return
	}
	t.Run("agent", func(t *testing.T) {
		ports, err := emulator.FreeConsulPorts()
		require.NoError(t, err)
		e, err := emulator.StartConsul(t.Context(), emulator.ConsulOptions{Ports: ports, Node: "agent"})
		require.NoError(t, err)
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		check(t, client(t, "127.0.0.1:"+strconv.Itoa(ports.HTTP), transport))
		require.NoError(t, e.Close())
	})
}

func client(t *testing.T, address string, wire http.RoundTripper) *api.Client {
	t.Helper()
	c, err := api.NewClient(&api.Config{Address: address, Scheme: "http", HttpClient: &http.Client{Transport: wire}})
	require.NoError(t, err)
	return c
}

// session makes one without checks. A lock-delay of 0 has to be sent raw.
func session(t *testing.T, c *api.Client, ttl, delay string) string {
	t.Helper()
	var out struct{ ID string }
	_, err := c.Raw().Write("/v1/session/create", map[string]any{"TTL": ttl, "LockDelay": delay, "NodeChecks": []string{}}, &out, nil)
	require.NoError(t, err)
	require.NotEmpty(t, out.ID)
	return out.ID
}

func txn(t *testing.T, c *api.Client, ops ...*api.KVTxnOp) (*api.TxnResponse, bool) {
	t.Helper()
	var all api.TxnOps
	for _, op := range ops {
		all = append(all, &api.TxnOp{KV: op})
	}
	done, resp, _, err := c.Txn().Txn(all, nil)
	require.NoError(t, err)
	return resp, done
}

// TestLock: what the verb lock answers, and what makes the index grow.
func TestLock(t *testing.T) {
	onBoth(t, func(t *testing.T, c *api.Client) {
		one, two := session(t, c, "60s", "0s"), session(t, c, "60s", "0s")
		lock := func(s, value string) *api.KVTxnOp {
			return &api.KVTxnOp{Verb: api.KVLock, Key: "k", Session: s, Value: []byte(value)}
		}
		resp, done := txn(t, c, lock(one, "v"), &api.KVTxnOp{Verb: api.KVSet, Key: "beside", Value: []byte("1")})
		require.True(t, done)
		first := resp.Results[0].KV
		require.Nil(t, first.Value)
		require.EqualValues(t, 1, first.LockIndex)
		require.Equal(t, first.ModifyIndex, resp.Results[1].KV.ModifyIndex, "one index for the whole transaction")
		resp, done = txn(t, c, lock(one, "v"))
		require.True(t, done, "a session is re-entrant")
		require.Equal(t, first.ModifyIndex, resp.Results[0].KV.ModifyIndex, "a write that changes nothing")
		resp, done = txn(t, c, lock(one, "w"))
		require.True(t, done)
		require.Greater(t, resp.Results[0].KV.ModifyIndex, first.ModifyIndex)

		resp, done = txn(t, c, lock(two, "v"), &api.KVTxnOp{Verb: api.KVCheckIndex, Key: "k", Index: 1}, &api.KVTxnOp{Verb: api.KVCheckNotExists, Key: "k"},
			&api.KVTxnOp{Verb: api.KVCheckIndex, Key: "none", Index: 1}, &api.KVTxnOp{Verb: api.KVCheckSession, Key: "k", Session: one})
		require.False(t, done)
		require.Len(t, resp.Errors, 4, "the reasons of all operations")
		require.Contains(t, resp.Errors[0].What, "already held")
		require.Contains(t, resp.Errors[1].What, "index check")
		require.Contains(t, resp.Errors[2].What, `" exists`)
		require.Contains(t, resp.Errors[3].What, "check index")
		_, err := c.KV().Put(&api.KVPair{Key: "k", Value: []byte("plain")}, nil)
		require.NoError(t, err)
		pair, _, err := c.KV().Get("k", nil)
		require.NoError(t, err)
		require.Equal(t, one, pair.Session, "a plain write leaves the lock")
		require.Zero(t, pair.LockIndex, "and its counter not")
		resp, done = txn(t, c, &api.KVTxnOp{Verb: api.KVUnlock, Key: "k", Session: two})
		require.False(t, done)
		require.Contains(t, resp.Errors[0].What, "isn't held")
		_, done = txn(t, c, &api.KVTxnOp{Verb: api.KVUnlock, Key: "k", Session: one, Value: []byte("free")})
		require.True(t, done)
		resp, done = txn(t, c, lock("00000000-0000-4000-8000-000000000000", "v"))
		require.False(t, done)
		require.Contains(t, resp.Errors[0].What, "invalid session")
		resp, done = txn(t, c, &api.KVTxnOp{Verb: api.KVGetTree, Key: "nothing/"})
		require.True(t, done, "an empty tree is no failure")
		require.Empty(t, resp.Results)

		_, err = c.KV().Delete("k", nil)
		require.NoError(t, err)
		resp, done = txn(t, c, lock(two, "v"))
		require.True(t, done)
		require.EqualValues(t, 1, resp.Results[0].KV.LockIndex, "it begins anew")
		require.Greater(t, resp.Results[0].KV.ModifyIndex, pair.ModifyIndex)
	})
}

// TestExpiry measures when a session ends and how long its lock stays closed.
func TestExpiry(t *testing.T) {
	onBoth(t, func(t *testing.T, c *api.Client) {
		other := session(t, c, "60s", "0s")
		began := time.Now()
		id := session(t, c, "2s", "3s")
		op := func(s string) *api.KVTxnOp { return &api.KVTxnOp{Verb: api.KVLock, Key: "k", Session: s} }
		_, done := txn(t, c, op(id))
		require.True(t, done)
		pair, meta, err := c.KV().Get("k", nil)
		require.NoError(t, err)
		require.Equal(t, id, pair.Session)
		pair, _, err = c.KV().Get("k", (&api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 20 * time.Second}).WithContext(context.Background()))
		require.NoError(t, err)
		require.Empty(t, pair.Session, "a blocking query is woken")
		ended := time.Since(began)
		t.Logf("TTL 2 s: ended after %v", ended.Round(time.Millisecond))
		require.InDelta(t, 4, ended.Seconds(), 0.5)
		resp, done := txn(t, c, op(other))
		require.False(t, done)
		require.Contains(t, resp.Errors[0].What, "lock delay")
		for !done {
			time.Sleep(50 * time.Millisecond)
			_, done = txn(t, c, op(other))
		}
		closed := time.Since(began) - ended
		t.Logf("lock-delay 3 s: closed for %v", closed.Round(time.Millisecond))
		require.InDelta(t, 3, closed.Seconds(), 0.5)
		_, err = c.Session().Destroy(other, nil)
		require.NoError(t, err)
		other = session(t, c, "60s", "0s")
		_, done = txn(t, c, op(other))
		require.True(t, done, "without a lock-delay it is open at once")
		entry, _, err := c.Session().Renew(id, nil)
		require.NoError(t, err)
		require.Nil(t, entry, "404")
	})
}

// TestRefusals are told alike.
func TestRefusals(t *testing.T) {
	onBoth(t, func(t *testing.T, c *api.Client) {
		for body, want := range map[string]string{
			`{"TTL": "500ms"}`:   "Invalid Session TTL",
			`{"Node": "nobody"}`: "Missing node registration",
		} {
			_, err := c.Raw().Write("/v1/session/create", rawJSON(body), nil, nil)
			require.ErrorContains(t, err, want)
		}
		_, _, err := c.KV().Get("k", &api.QueryOptions{Datacenter: "elsewhere"})
		require.ErrorContains(t, err, "No path to datacenter")
		pair, meta, err := c.KV().Get("missing", nil)
		require.NoError(t, err)
		require.Nil(t, pair)
		require.NotZero(t, meta.LastIndex)
		self, err := c.Agent().Self()
		require.NoError(t, err)
		require.Equal(t, "dc1", self["Config"]["Datacenter"])
	})
}

// rawJSON passes through the SDK's encoder as it is.
type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// TestCompareAndSet by the index, in a transaction and as a plain write.
func TestCompareAndSet(t *testing.T) {
	onBoth(t, func(t *testing.T, c *api.Client) {
		cas := func(index uint64, value string) (*api.TxnResponse, bool) {
			return txn(t, c, &api.KVTxnOp{Verb: api.KVCAS, Key: "k", Index: index, Value: []byte(value)})
		}
		resp, done := cas(0, "a")
		require.True(t, done)
		at := resp.Results[0].KV.ModifyIndex
		resp, done = cas(0, "b")
		require.False(t, done)
		require.Contains(t, resp.Errors[0].What, "index is stale")
		_, done = cas(at, "b")
		require.True(t, done)
		ok, _, err := c.KV().CAS(&api.KVPair{Key: "k", ModifyIndex: at, Value: []byte("c")}, nil)
		require.NoError(t, err)
		require.False(t, ok)
		list, _, err := c.KV().List("k", nil)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "b", string(list[0].Value))
		var many api.TxnOps
		for i := range 129 {
			many = append(many, &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: fmt.Sprint("m", i), Value: []byte(base64.StdEncoding.EncodeToString([]byte("v")))}})
		}
		_, _, _, err = c.Txn().Txn(many, nil)
		require.ErrorContains(t, err, "too many operations")
	})
}
