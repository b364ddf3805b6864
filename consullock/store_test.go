package consullock_test

import (
	"net/http"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// perSecond is what one host sends in a second at most: a renewal that fails is two requests, and tried five times a second.
const perSecond = 8

// TestStore runs the specification in virtual time, against the wire.
func TestStore(t *testing.T) {
	leasetest.TestStore(t, virtual(consullock.Options{}))
}

// TestStoreNamesTheHolder: refusals name who has the lock, for one request more.
func TestStoreNamesTheHolder(t *testing.T) {
	h := virtual(consullock.Options{NameHolder: true})
	h.Anonymous, h.Rounds = false, 10
	leasetest.TestStore(t, h)
}

// virtual is the specification for the fake, which keeps a lock closed for a TTL more than others do.
func virtual(o consullock.Options) leasetest.Harness {
	return leasetest.Harness{Virtual: true, TTL: ttl, Slack: ttl, PerSecond: perSecond, Anonymous: true, New: func(t *testing.T) leasetest.Backend {
		t.Helper()
		return newVirtual(t, o)
	}}
}

// TestGuard runs the guards' specification in virtual time.
func TestGuard(t *testing.T) {
	leasetest.TestGuard(t, leasetest.GuardHarness{Virtual: true, New: func(t *testing.T) leasetest.Guarded {
		t.Helper()
		return newVirtual(t, consullock.Options{})
	}})
}

// backend is a Consul of some kind.
type backend struct {
	opt    consullock.Options
	config func(wrap func(http.RoundTripper) http.RoundTripper) *api.Config
	remove func(t *testing.T, folder string)
}

func newVirtual(t *testing.T, o consullock.Options) *backend {
	t.Helper()
	return newVirtualOf(newService(consulfake.Options{}), o)
}

func newVirtualOf(s *service, o consullock.Options) *backend {
	return &backend{opt: o, config: s.config, remove: func(t *testing.T, folder string) {
		t.Helper()
		require.True(t, s.Delete(folder, true))
	}}
}

func (b *backend) Store(t *testing.T, h leasetest.Host) lease.Store {
	t.Helper()
	o := b.opt
	o.Clock = h.Clock
	return newStore(t, b.config(faulty(h)), o)
}

// Guard implements leasetest.Guarded.
func (b *backend) Guard(t *testing.T, h leasetest.Host) fence.Guard {
	t.Helper()
	o := &consullock.GuardOptions{}
	if b.opt.Prefix != "" {
		o.Prefix = b.opt.Prefix + "guarded/"
	}
	g, err := consullock.NewGuard(b.config(faulty(h)), o)
	require.NoError(t, err)
	return g
}

func faulty(h leasetest.Host) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return h.Faults.RoundTripper(next, refusal) }
}

func (b *backend) Delete(t *testing.T, name string) {
	t.Helper()
	require.NotContains(t, name, "/", "names that the suite deletes need no escape")
	prefix := b.opt.Prefix
	if prefix == "" {
		prefix = "cloudlease/"
	}
	b.remove(t, prefix+"locks/"+name+"/")
}

// refusal is how the service answers a failure.
func refusal(r *http.Request, f leasetest.Failure) *http.Response {
	switch f {
	case leasetest.Throttled:
		return answer(r, http.StatusTooManyRequests, "Too many requests")
	case leasetest.Internal:
		return answer(r, http.StatusInternalServerError, "rpc error making call: EOF")
	case leasetest.Denied:
		return answer(r, http.StatusForbidden, "Permission denied")
	case leasetest.Unavailable:
	}
	return answer(r, http.StatusServiceUnavailable, "")
}
