package election_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/lease"
)

// TestRandomFaults lets candidates come, go, crash, resign, dawdle and lose their network, in an order that a seed decides. Then
// the book must show that no two terms' contexts were alive at one instant, that each start has one stop, and that tokens
// grow; and when the network is well again, somebody leads.
func TestRandomFaults(t *testing.T) {
	terms := 0
	for _, store := range []func(*testing.T) (func() lease.Store, time.Duration){memory, dynamodb} {
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, book: &book{}}
				w.connect, w.slack = store(t)
				act(t, w, rand.New(rand.NewPCG(seed, 1)))
				w.close()
				w.book.check(t)
				terms += len(w.book.all())
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			})
		}
	}
	t.Logf("%d terms", terms)
	require.Greater(t, terms, 150, "or little was tried")
}

func act(t *testing.T, w *world, r *rand.Rand) {
	t.Helper()
	span := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
	join := func() *host {
		h := w.host(string(rune('a'+len(w.hosts))), setup{
			lease:    lease.Options{Margin: 600*time.Millisecond + span(2*time.Second)},
			election: election.Options{StopLimit: 3 * ttl, Pause: 100*time.Millisecond + span(2*time.Second)},
		})
		patience, dawdle := time.Second+span(10*ttl), span(2*ttl)
		return h.run(func(ctx context.Context, _ *lease.Lease) error {
			select {
			case <-time.After(patience):
				return nil
			case <-ctx.Done():
				time.Sleep(dawdle)
				return ctx.Err()
			}
		})
	}
	hosts := []*host{join(), join(), join()}
	for range 60 {
		time.Sleep(span(ttl))
		h := hosts[r.IntN(len(hosts))]
		switch r.IntN(9) {
		case 0:
			hosts = append(hosts, join())
		case 1:
			require.NoError(t, h.leave())
			h.run(obey)
		case 2:
			if len(hosts) > 4 {
				h.crash()
			}
		case 3, 4, 5:
			if h.wire.is() != dead {
				h.wire.set([]int{open, black, mute}[r.IntN(3)])
			}
		default:
			part := r.Float64()
			dice := rand.New(rand.NewPCG(r.Uint64(), 2))
			h.wire.each(func(string) int {
				if dice.Float64() < part {
					return 1 + dice.IntN(3)
				}
				return open
			})
		}
	}
	for _, h := range hosts {
		h.wire.each(nil)
		h.wire.set(open)
	}
	leads(t, 5*ttl+w.slack, hosts...)
}
