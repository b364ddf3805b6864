package singleton_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azcontainer "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/singleton"
)

// backend is a lock service to run the cases on.
type backend struct {
	name   string
	minTTL time.Duration // cases with a shorter TTL use this one
	// How much later than by its TTL a dead lease is free on this service, at the most, and by how many TTLs.
	slack     time.Duration
	slackTTLs int
	// unlike are the cases that ask for what this service does not do, and what they meet instead. What is store-independent in
	// them stands again below, in the service's own times.
	unlike map[string]string
	// open makes a new service in virtual time and returns what connects a host with it.
	open func(t *testing.T) func(lease.Clock) lease.Store
}

var backends = []backend{
	{name: "memory", open: openMemory},
	{name: "dynamodb", open: openDynamoDB, minTTL: dynamolock.MinTTL, slack: 3 * time.Second},
	{name: "azure", open: openAzure, minTTL: bloblease.MinTTL, unlike: unlikeAzure},
	{name: "consul", open: openConsul, minTTL: consulMinTTL, slackTTLs: 2, unlike: unlikeConsul},
}

func openMemory(*testing.T) func(lease.Clock) lease.Store {
	s := memlease.NewService()
	return func(c lease.Clock) lease.Store { return s.Store(&memlease.Options{Clock: c}) }
}

func openDynamoDB(t *testing.T) func(lease.Clock) lease.Store {
	t.Helper()
	const table = "locks"
	sdk := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
	_, err := sdk.CreateTable(t.Context(), dynamolock.CreateTableInput(table))
	require.NoError(t, err)
	return func(c lease.Clock) lease.Store {
		s, err := dynamolock.New(sdk, table, &dynamolock.Options{Clock: c})
		require.NoError(t, err)
		return s
	}
}

func openAzure(t *testing.T) func(lease.Clock) lease.Store {
	t.Helper()
	const container = "locks"
	wire := &http.Client{Transport: emulator.Transport(blobfake.New(container), nil)}
	sdk, err := azcontainer.NewClientWithNoCredential("http://blob.invalid/account/"+container, &azcontainer.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: wire},
	})
	require.NoError(t, err)
	return func(c lease.Clock) lease.Store {
		s, err := bloblease.New(sdk, &bloblease.Options{Clock: c})
		require.NoError(t, err)
		return long{s}
	}
}

// consulMinTTL is the lowest that session_ttl_min can be set to.
const consulMinTTL = time.Second

func openConsul(t *testing.T) func(lease.Clock) lease.Store {
	t.Helper()
	wire := emulator.Transport(consulfake.New(&consulfake.Options{MinTTL: consulMinTTL}), nil)
	return func(c lease.Clock) lease.Store {
		cfg := &api.Config{Address: "consul.invalid", HttpClient: &http.Client{Transport: wire}}
		s, err := consullock.New(cfg, &consullock.Options{MinTTL: consulMinTTL, Clock: c})
		require.NoError(t, err)
		return s
	}
}

// onEveryStore runs a case on every backend, each in a bubble of its own.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, b := range backends {
		if name, _, _ := strings.Cut(t.Name(), "/"); b.unlike[name] != "" {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, backend: b, connect: b.open(t), journal: &journal{}}
				test(t, w)
				w.close()
				w.journal.check(t)
			})
		})
	}
}

var unlikeAzure = map[string]string{
	"TestSF03_ARunTakesLongerThanThePeriod": "the service does not tell when a held lease ends",
	"TestSF04a_KilledAtTheTimeOut":          shortLease,
	"TestSF04b_AtMostOnce":                  shortLease,
	"TestAtMostOnceDoesNotRetryFailures":    shortLease,
	"TestAtMostOnceAfterAtLeastOnce":        shortLease,
	"TestHistoryOfAKilledOlderRun":          shortLease,
	"TestSF05bc_KilledWhileHolding":         shortLease,
	"TestSF10_TheRetryWaitsForTheDeadRun":   shortLease,
	"TestAcquireInDoubt":                    "what is given back leaves the marks as they were: nothing is in doubt",
}

var unlikeConsul = map[string]string{
	"TestSF03_ARunTakesLongerThanThePeriod": "the service does not tell when a held lease ends",
	"TestSF05bc_KilledWhileHolding":         lockDelay,
	"TestSF10_TheRetryWaitsForTheDeadRun":   lockDelay,
	"TestAcquireInDoubt":                    "what is given back leaves the marks as they were: nothing is in doubt",
}

const lockDelay = "a dead run's lock opens after three TTLs, the last of which is Consul's lock-delay"

const shortLease = "a dead run's lease stands for 15 s at the least"

// long is a store whose leases are longer than the cases ask for: their clients renew as often as they would otherwise.
type long struct{ *bloblease.Store }

func (l long) Limits() lease.Limits {
	limits := l.Store.Limits()
	limits.MinTTL, limits.Granularity = 0, 0
	return limits
}

func (l long) TryAcquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	r.TTL = max(r.TTL, bloblease.MinTTL)
	return l.Store.TryAcquire(ctx, r)
}

// slack is how much later than by its TTL a dead lease is free.
func (w *world) slack(ttl time.Duration) time.Duration {
	return w.backend.slack + time.Duration(w.backend.slackTTLs)*ttl
}

// deadAgain is when the lease of a run that died just now has certainly ended.
func (w *world) deadAgain(ttl time.Duration) time.Duration {
	return ttl + w.slack(ttl) + time.Second
}

// TestSF04a_KilledWhateverTheLease: each retry is told to come again until one runs, when the lease has ended at the latest. None
// is told that there is nothing to do, also while the service keeps the lock of a dead holder closed.
func TestSF04a_KilledWhateverTheLease(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		ttl := w.ttl(2 * time.Second)
		runAndKill(t, w.host(ttl, nil), at, time.Second)
		var res singleton.Result
		for tries, dead := 0, time.Now(); res.Outcome != singleton.Ran; tries++ {
			require.LessOrEqual(t, time.Since(dead), w.deadAgain(ttl)+time.Second)
			var err error
			if res, err = w.host(ttl, nil).deliver(t.Context(), at, time.Second, nil); err != nil || tries == 0 {
				require.ErrorIs(t, err, singleton.ErrRunning)
				require.Equal(t, singleton.Running, res.Outcome)
				time.Sleep(time.Second)
				continue
			}
			require.Equal(t, singleton.Ran, res.Outcome)
		}
		res, err := w.host(ttl, nil).deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.AlreadyDone, res.Outcome)
		require.Len(t, w.journal.of(at), 2)
	})
}

// TestSF04b_AtMostOnceWhateverTheLease: a killed run is in doubt once its lease has ended, and runs again only when cleared. The
// failure of an earlier run does not hide that.
func TestSF04b_AtMostOnceWhateverTheLease(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		ttl := w.ttl(2 * time.Second)
		once := &singleton.Options{Policy: singleton.AtMostOnce}
		_, err := w.host(ttl, nil).deliver(t.Context(), at, time.Second, errBody)
		require.ErrorIs(t, err, errBody)
		runAndKill(t, w.host(ttl, nil), at, time.Second)
		time.Sleep(w.deadAgain(ttl))
		operator := w.host(ttl, once)
		for range 2 {
			res, err := operator.deliver(t.Context(), at, time.Second, nil)
			require.ErrorIs(t, err, lease.ErrInDoubt)
			require.Equal(t, singleton.InDoubt, res.Outcome)
		}
		hist, err := operator.job.History(t.Context())
		require.NoError(t, err)
		require.Equal(t, singleton.InDoubt, hist.Runs[0].Outcome)
		require.Equal(t, at, hist.Runs[0].Occurrence)
		require.NoError(t, operator.job.Clear(t.Context(), at))
		res, err := operator.deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
		require.Len(t, w.journal.of(at), 3)
	})
}

// TestSF10_TheRetryWaitsWhateverTheLease: never before the dead run's lease has ended, and within the take-over bound.
func TestSF10_TheRetryWaitsWhateverTheLease(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		at := w.until("2026-03-02T06:00:00Z")
		ttl := w.ttl(6 * time.Second)
		first := w.host(ttl, nil)
		runAndKill(t, first, at, ttl) // it has renewed by then
		renewed := at
		for _, op := range first.wire.take() {
			require.NotEqual(t, "release", op.name)
			if op.name == "renew" {
				renewed = op.at
			}
		}
		require.True(t, renewed.After(at))
		res, err := w.host(ttl, &singleton.Options{Wait: time.Hour}).deliver(t.Context(), at, time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, singleton.Ran, res.Outcome)
		taken := w.journal.of(at)[1].begin.Sub(renewed)
		require.GreaterOrEqual(t, taken, ttl)
		require.LessOrEqual(t, taken, ttl+max(ttl, w.slack(ttl))+3*time.Second)
	})
}

// TestSF03_SkippedWhateverTheLease: the case's outcomes, whether or not the service tells when a held lease ends.
func TestSF03_SkippedWhateverTheLease(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		start := w.until("2026-03-02T06:00:00Z")
		ttl := w.ttl(2 * time.Second)
		outcomes := make([]singleton.Outcome, 5)
		var wg sync.WaitGroup
		for i := range outcomes {
			h, at := w.host(ttl, nil), start.Add(time.Duration(2*i)*time.Second)
			wg.Go(func() {
				time.Sleep(time.Until(at))
				res, err := h.deliver(t.Context(), at, 5*time.Second, nil)
				if err != nil {
					t.Error(err)
				}
				outcomes[i] = res.Outcome
			})
		}
		time.Sleep(3 * time.Second)
		h, err := w.host(ttl, nil).job.History(t.Context())
		require.NoError(t, err)
		require.NotNil(t, h.Running)
		require.Equal(t, start, h.Running.Occurrence)
		require.WithinDuration(t, start, h.Running.Since, 2*time.Second)
		wg.Wait()
		require.Equal(t, []singleton.Outcome{
			singleton.Ran, singleton.Busy, singleton.Busy, singleton.Ran, singleton.Busy,
		}, outcomes)
	})
}
