package consullock_test

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// counting counts requests.
type counting struct {
	next http.RoundTripper
	n    atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.next.RoundTrip(r)
}

// benchAgent is an agent without ACLs, and a configuration for it that counts.
func benchAgent(b *testing.B) (*api.Config, *counting) {
	b.Helper()
	ports, err := emulator.FreeConsulPorts()
	require.NoError(b, err)
	e, err := emulator.StartConsul(b.Context(), emulator.ConsulOptions{Ports: ports})
	require.NoError(b, err)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	b.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(b, e.Close())
	})
	c := &counting{next: transport}
	return configAt("127.0.0.1:"+strconv.Itoa(ports.HTTP), c), c
}

func benchClient(b *testing.B, cfg *api.Config) *lease.Client {
	b.Helper()
	c, err := lease.New(newStore(b, cfg, consullock.Options{}), &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close(context.Background())) })
	return c
}

// BenchmarkAgent is a grant and its release at an agent, beside the least that locks and the SDK's own lock.
func BenchmarkAgent(b *testing.B) {
	cfg, sent := benchAgent(b)
	raw, err := api.NewClient(cfg)
	require.NoError(b, err)
	run := func(name string, once func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			once(b)
			b.ReportAllocs()
			before := sent.n.Load()
			for b.Loop() {
				once(b)
			}
			b.ReportMetric(float64(sent.n.Load()-before)/float64(b.N), "requests/op")
		})
	}
	c := benchClient(b, cfg)
	run("cloudlease", func(b *testing.B) {
		l, err := c.Acquire(b.Context(), "x")
		require.NoError(b, err)
		require.NoError(b, l.Release(b.Context()))
	})
	id, _, err := raw.Session().CreateNoChecks(&api.SessionEntry{TTL: "60s"}, nil)
	require.NoError(b, err)
	run("two transactions of the SDK", func(b *testing.B) {
		for _, verb := range []api.KVOp{api.KVLock, api.KVUnlock} {
			done, _, _, err := raw.Txn().Txn(api.TxnOps{{KV: &api.KVTxnOp{Verb: verb, Key: "y", Session: id, Value: []byte("v")}}}, nil)
			require.NoError(b, err)
			require.True(b, done)
		}
	})
	run("api.Lock", func(b *testing.B) {
		l, err := raw.LockOpts(&api.LockOptions{Key: "z", SessionTTL: "30s"})
		require.NoError(b, err)
		_, err = l.Lock(nil)
		require.NoError(b, err)
		require.NoError(b, l.Unlock())
	})
}

// BenchmarkHandOver is the time from the release to the grant of the one who waits.
func BenchmarkHandOver(b *testing.B) {
	cfg, _ := benchAgent(b)
	clients := []*lease.Client{benchClient(b, cfg), benchClient(b, cfg)}
	report := func(b *testing.B, took []time.Duration) {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
		b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms/p95")
	}
	b.Run("cloudlease", func(b *testing.B) {
		l, err := clients[0].Acquire(b.Context(), "x")
		require.NoError(b, err)
		var took []time.Duration
		for i := 1; b.Loop(); i++ {
			got := make(chan *lease.Lease)
			go func() {
				next, err := clients[i%2].Acquire(context.Background(), "x")
				if err != nil {
					b.Error(err)
				}
				got <- next
			}()
			time.Sleep(100 * time.Millisecond) // it waits
			released := time.Now()
			require.NoError(b, l.Release(b.Context()))
			l = <-got
			took = append(took, time.Since(released))
		}
		require.NoError(b, l.Release(b.Context()))
		report(b, took)
	})
	b.Run("api.Lock", func(b *testing.B) {
		raw, err := api.NewClient(cfg)
		require.NoError(b, err)
		lock := func() *api.Lock {
			l, err := raw.LockOpts(&api.LockOptions{Key: "z", SessionTTL: "30s"})
			require.NoError(b, err)
			return l
		}
		l := lock()
		_, err = l.Lock(nil)
		require.NoError(b, err)
		var took []time.Duration
		for b.Loop() {
			next, got := lock(), make(chan struct{})
			go func() {
				if _, err := next.Lock(nil); err != nil {
					b.Error(err)
				}
				close(got)
			}()
			time.Sleep(100 * time.Millisecond)
			released := time.Now()
			require.NoError(b, l.Unlock())
			<-got
			l = next
			took = append(took, time.Since(released))
		}
		require.NoError(b, l.Unlock())
		report(b, took)
	})
}
