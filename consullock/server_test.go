package consullock_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// agentOf starts an agent and ends it with the test.
func agentOf(t *testing.T, o emulator.ConsulOptions) *emulator.Engine {
	t.Helper()
	e, err := emulator.StartConsul(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() }) // the test has killed it, perhaps
	return e
}

func freePorts(t *testing.T) emulator.ConsulPorts {
	t.Helper()
	p, err := emulator.FreeConsulPorts()
	require.NoError(t, err)
	return p
}

func configOf(t *testing.T, p emulator.ConsulPorts) *api.Config {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return configAt("127.0.0.1:"+strconv.Itoa(p.HTTP), transport)
}

// watchFor looks for a second holder until d is over: b tries while l is trusted.
func watchFor(t *testing.T, l *lease.Lease, b *lease.Client, name string, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		next, err := b.TryAcquire(t.Context(), name)
		if err != nil {
			continue // held, or no leader
		}
		require.Error(t, l.Err(), "two holders at one time")
		require.Greater(t, next.Token(), l.Token())
		require.NoError(t, next.Release(t.Context()))
		return
	}
}

func closeClient(t *testing.T, c *lease.Client) {
	t.Helper()
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // its server is gone, perhaps
}

// TestServerKilledAndRestarted is CO-03 c, with kill -9: the server comes back with its data after four seconds, and the lease is
// not lost, nor given to another.
func TestServerKilledAndRestarted(t *testing.T) {
	if !engines() {
		return
	}
	t.Parallel()
	o := emulator.ConsulOptions{DataDir: t.TempDir(), Ports: freePorts(t), Node: "kept"}
	e := agentOf(t, o)
	a := clientOf(t, newStore(t, configOf(t, o.Ports), consullock.Options{}), &lease.Options{TTL: 12 * time.Second})
	b := clientOf(t, newStore(t, configOf(t, o.Ports), consullock.Options{}), &lease.Options{TTL: 12 * time.Second})
	closeClient(t, a)
	closeClient(t, b)
	l := acquire(t, a, "x")
	_, err := b.TryAcquire(t.Context(), "x")
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, e.Close())
	killed := time.Now()
	time.Sleep(4 * time.Second)
	agentOf(t, o)
	t.Logf("the server was away for %v", time.Since(killed).Round(time.Millisecond))
	watchFor(t, l, b, "x", 14*time.Second)
	require.NoError(t, l.Err(), "its session was kept, and renewed in time")
	require.NoError(t, l.Release(t.Context()))
	next := acquire(t, b, "x")
	require.Greater(t, next.Token(), l.Token())
	require.NoError(t, next.Release(t.Context()))
}

// clusterOf starts three servers.
func clusterOf(t *testing.T) ([]emulator.ConsulPorts, []*emulator.Engine) {
	t.Helper()
	ports := []emulator.ConsulPorts{freePorts(t), freePorts(t), freePorts(t)}
	servers := make([]*emulator.Engine, len(ports))
	for i, p := range ports {
		servers[i] = agentOf(t, emulator.ConsulOptions{DataDir: t.TempDir(), Ports: p, Node: "server-" + strconv.Itoa(i), Servers: 3, Join: ports})
	}
	for _, p := range ports {
		require.NoError(t, emulator.AwaitConsul(t.Context(), p, ""))
	}
	return ports, servers
}

// TestLeaderKilled: one of three servers, the leader, is killed while a lease is held through another.
func TestLeaderKilled(t *testing.T) {
	if !engines() {
		return
	}
	t.Parallel()
	ports, servers := clusterOf(t)
	leader := leaderOf(t, ports)
	others := append(append([]emulator.ConsulPorts{}, ports[:leader]...), ports[leader+1:]...)
	a := clientOf(t, newStore(t, configOf(t, others[0]), consullock.Options{}), &lease.Options{TTL: 15 * time.Second})
	b := clientOf(t, newStore(t, configOf(t, others[1]), consullock.Options{}), &lease.Options{TTL: 15 * time.Second})
	closeClient(t, a)
	closeClient(t, b)
	l := acquire(t, a, "x")
	require.NoError(t, servers[leader].Close())
	killed := time.Now()
	require.NoError(t, emulator.AwaitConsul(t.Context(), others[0], ""))
	t.Logf("a new leader makes sessions after %v", time.Since(killed).Round(time.Millisecond))
	watchFor(t, l, b, "x", 17*time.Second)
	require.NoError(t, l.Err(), "the new leader starts its time anew, and it is renewed")
	require.NoError(t, l.Release(t.Context()))
	next := acquire(t, b, "x")
	require.Greater(t, next.Token(), l.Token())
	require.NoError(t, next.Release(t.Context()))
}

func leaderOf(t *testing.T, ports []emulator.ConsulPorts) int {
	t.Helper()
	var address string
	require.NoError(t, emulator.ConsulCall(t.Context(), ports[0], "", http.MethodGet, "/v1/status/leader", "", &address))
	for i, p := range ports {
		if address == "127.0.0.1:"+strconv.Itoa(p.Server) {
			return i
		}
	}
	require.FailNow(t, "no leader", address)
	return 0
}

// TestAgentKilled: a session belongs to the agent that made it. When that is a server and dies, the cluster removes it with its
// sessions, and frees their locks although they are renewed through another; the lock-delay keeps them closed until their holder
// has stopped. A session of a catalog-only node outlives every agent.
func TestAgentKilled(t *testing.T) {
	if !engines() {
		return
	}
	t.Parallel()
	ports, servers := clusterOf(t)
	doomed := (leaderOf(t, ports) + 1) % len(ports)
	mortal, client, server := servers[doomed], ports[doomed], ports[(doomed+1)%len(ports)]
	root, err := api.NewClient(configOf(t, server))
	require.NoError(t, err)
	_, err = root.Catalog().Register(&api.CatalogRegistration{Node: "locks-only", Address: "127.0.0.1"}, nil)
	require.NoError(t, err)

	// Both speak to the doomed server first, and then to another.
	swap := &hosts{first: "127.0.0.1:" + strconv.Itoa(client.HTTP), then: "127.0.0.1:" + strconv.Itoa(server.HTTP)}
	store := func(o consullock.Options) *lease.Client {
		cfg := configOf(t, client)
		cfg.HttpClient.Transport = swap.wrap(cfg.HttpClient.Transport)
		c := clientOf(t, newStore(t, cfg, o), &lease.Options{TTL: 10 * time.Second})
		closeClient(t, c)
		return c
	}
	bound, free := store(consullock.Options{}), store(consullock.Options{Node: "locks-only", LockDelay: -1})
	b := clientOf(t, newStore(t, configOf(t, server), consullock.Options{}), &lease.Options{TTL: 10 * time.Second})
	closeClient(t, b)
	l, kept := acquire(t, bound, "x"), acquire(t, free, "y")
	require.NoError(t, mortal.Close())
	killed := time.Now()
	swap.move()

	next := make(chan *lease.Lease, 1)
	failed := make(chan error, 1)
	go func() {
		got, err := b.Acquire(t.Context(), "x")
		if err != nil {
			failed <- err
			return
		}
		if l.Err() == nil {
			failed <- errors.New("two holders at one time")
		}
		next <- got
	}()
	select {
	case <-l.Done():
		t.Logf("the lease of the dead agent's session was lost after %v", time.Since(killed).Round(time.Millisecond))
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the cluster has not noticed the agent's death")
	}
	lost := time.Now()
	select {
	case got := <-next:
		t.Logf("the next holder had it %v later", time.Since(lost).Round(time.Millisecond))
		require.Greater(t, got.Token(), l.Token())
		require.NoError(t, got.Release(t.Context()))
	case err := <-failed:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nobody got the lock")
	}
	require.NoError(t, kept.Err(), "the catalog-only node's session lives on")
	require.NoError(t, kept.Release(t.Context()))
	again, err := bound.Acquire(t.Context(), "x")
	require.NoError(t, err, "recovery without a restart")
	require.NoError(t, again.Release(t.Context()))
}
