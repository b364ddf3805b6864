package shard_test

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// realBackends are the engines to run on in real time: the embedded one, and with CLOUDLEASE_ENGINES=1 those that are processes.
func realBackends() []backend {
	var all []backend
	for _, engine := range emulator.Engines() {
		all = append(all, backend{name: engine.Name, minTTL: dynamolock.MinTTL, slack: 5 * time.Second, open: func(t *testing.T) service {
			sdk := emulator.Client(engine.For(t).URL, transport(t))
			require.NoError(t, emulator.CreateTables(t.Context(), sdk, dynamolock.CreateTableInput("locks")))
			return service{connect: func(c lease.Clock) lease.Store {
				s, err := dynamolock.New(sdk, "locks", &dynamolock.Options{Clock: c})
				require.NoError(t, err)
				return s
			}}
		}})
	}
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return all
	}
	return append(all,
		backend{name: "azurite", minTTL: bloblease.MinTTL, slack: 5 * time.Second, open: func(t *testing.T) service {
			e, err := emulator.StartAzurite(t.Context(), emulator.AzuriteOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, e.Close()) })
			key, err := container.NewSharedKeyCredential(emulator.AzuriteAccount, emulator.AzuriteKey)
			require.NoError(t, err)
			c, err := container.NewClientWithSharedKeyCredential(e.URL+"/locks", key, &container.ClientOptions{ClientOptions: azcore.ClientOptions{
				Transport: &http.Client{Transport: transport(t)}, Retry: policy.RetryOptions{MaxRetries: -1},
			}})
			require.NoError(t, err)
			_, err = c.Create(t.Context(), nil)
			require.NoError(t, err)
			return service{connect: func(clock lease.Clock) lease.Store {
				s, err := bloblease.New(c, &bloblease.Options{Clock: clock})
				require.NoError(t, err)
				return s
			}}
		}},
		backend{name: "consul", minTTL: 2 * time.Second, slack: 20 * time.Second, open: func(t *testing.T) service {
			ports, err := emulator.FreeConsulPorts()
			require.NoError(t, err)
			e, err := emulator.StartConsul(t.Context(), emulator.ConsulOptions{Ports: ports})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, e.Close()) })
			wire := transport(t)
			return service{connect: func(clock lease.Clock) lease.Store {
				s, err := consullock.New(&api.Config{Address: e.URL, HttpClient: &http.Client{Transport: wire}},
					&consullock.Options{MinTTL: time.Second, Clock: clock})
				require.NoError(t, err)
				return s
			}}
		}},
	)
}

// transport is a network of its own, so that nothing of it is left when the test has ended.
func transport(t *testing.T) *http.Transport {
	t.Helper()
	tr := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// TestInRealTime: one worker, a second one, an orderly end, a death. What is waited for may come late on a busy machine; what must
// not happen is checked by the journal.
func TestInRealTime(t *testing.T) {
	for _, b := range realBackends() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, b)
			w.real = true
			w.ttl = max(4*time.Second, b.minTTL)
			c := config{source: shard.Static(ids(8)...)}
			const busy = 30 * time.Second
			a := w.host(c)
			w.eventually(w.ttl+busy, "w1 has all", func() bool { return w.journal.loads(a)[0] == 8 })
			b := w.host(c)
			w.eventually(3*w.ttl+busy, "both have half", func() bool { return w.journal.loads(a)[0] == 4 && w.journal.loads(b)[0] == 4 })
			require.NoError(t, a.stop())
			w.eventually(w.ttl+busy, "w2 has all", func() bool { return w.journal.loads(b)[0] == 8 })
			require.Empty(t, w.journal.repeats())
			d := w.host(c)
			w.eventually(3*w.ttl+busy, "both have half", func() bool { return w.journal.loads(b)[0] == 4 && w.journal.loads(d)[0] == 4 })
			b.kill()
			took := w.eventually(w.takeover()+busy, "w3 has all", func() bool { return w.journal.loads(d)[0] == 8 })
			t.Logf("w3 has all %v after the kill", took)
			for id, n := range w.journal.repeats() {
				require.LessOrEqual(t, n, 1, "%s: at most one batch is repeated", id)
			}
			w.close()
			w.journal.check(t)
		})
	}
}
