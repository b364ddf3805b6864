package consullock_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// TestSimulation tries the store by chance, without a lock-delay: with one, a holder that is late has stopped long before the next.
func TestSimulation(t *testing.T) {
	for name, o := range map[string]consullock.Options{"plain": {LockDelay: -1}, "naming the holder": {LockDelay: -1, NameHolder: true}} {
		t.Run(name, func(t *testing.T) {
			h := virtual(o)
			h.New = func(t *testing.T) leasetest.Backend {
				t.Helper()
				s := newService(consulfake.Options{})
				b := &simulated{newVirtualOf(s, o), s}
				b.config = func(wrap func(http.RoundTripper) http.RoundTripper) *api.Config { return s.config(forgetful(wrap)) }
				return b
			}
			leasetest.Simulate(t, h, leasetest.Simulation{Seeds: 5})
		})
	}
}

// simulated is a Consul at its worst.
type simulated struct {
	*backend
	service *service
}

// forgetful is a wire on which renewals of sessions are answered by a server that has just come to lead, now and then, and fail for
// longer than a session lasts, while all else passes.
func forgetful(wrap func(http.RoundTripper) http.RoundTripper) func(http.RoundTripper) http.RoundTripper {
	var renewals, until atomic.Int64
	return func(next http.RoundTripper) http.RoundTripper {
		behind := roundTripper(func(r *http.Request) (*http.Response, error) {
			if !strings.HasPrefix(r.URL.Path, "/v1/session/renew/") {
				return next.RoundTrip(r)
			}
			now := time.Now()
			switch renewals.Add(1) % 40 {
			case 0:
				return answer(r, http.StatusNotFound, "Session id '00000000-0000-4000-8000-000000000000' not found"), nil
			case 15:
				until.Store(now.Add(3 * ttl).UnixNano())
			}
			if now.UnixNano() < until.Load() {
				return answer(r, http.StatusInternalServerError, "rpc error making call: EOF"), nil
			}
			return next.RoundTrip(r)
		})
		if wrap == nil {
			return behind
		}
		return wrap(behind)
	}
}

// Replace implements leasetest.Replaced.
func (b *simulated) Replace(f func()) {
	b.service.lost.Store(consulfake.New(&consulfake.Options{MinTTL: time.Second}))
	f()
	b.service.lost.Store(nil)
}

// Leftovers implements leasetest.Tidy.
func (b *simulated) Leftovers() []string {
	var names []string
	for _, s := range b.service.Sessions() {
		names = append(names, s.Name)
	}
	return names
}

// Write implements leasetest.Checked.
func (b *simulated) Write(h leasetest.Host, s lease.Store) (func(context.Context, *lease.Lease) (bool, error), bool) {
	st := s.(*consullock.Store)
	return func(ctx context.Context, l *lease.Lease) (bool, error) {
		client, err := api.NewClient(b.config(faulty(h)))
		if err != nil {
			return false, err
		}
		f, err := st.Fence(l)
		if err != nil {
			return false, err
		}
		done, resp, _, err := client.Txn().Txn(append(f.Ops(), f.Set("checked", nil)), (&api.QueryOptions{}).WithContext(ctx))
		if err != nil || done {
			return done, err
		}
		if err := f.Refused(resp.Errors); !errors.Is(err, lease.ErrStale) {
			return false, err
		}
		return false, nil
	}, true
}
