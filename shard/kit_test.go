package shard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const groupName = "orders"

// backend is a lock service to run the cases on.
type backend struct {
	name   string
	minTTL time.Duration // cases with a shorter TTL use this one
	slack  time.Duration // how much later than by its TTL a dead lease is free on this service
	open   func(t *testing.T) service
}

// service is a lock service in virtual time.
type service struct {
	connect func(lease.Clock) lease.Store
	erase   func(t *testing.T, key string) // deletes a record behind everybody's back; nil: there is no way
}

var backends = []backend{
	{name: "memory", open: func(*testing.T) service {
		s := memlease.NewService()
		return service{connect: func(c lease.Clock) lease.Store { return s.Store(&memlease.Options{Clock: c}) }}
	}},
	{name: "dynamodb", minTTL: dynamolock.MinTTL, slack: 3 * time.Second, open: func(t *testing.T) service {
		sdk := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
		_, err := sdk.CreateTable(t.Context(), dynamolock.CreateTableInput("locks"))
		require.NoError(t, err)
		return service{
			connect: func(c lease.Clock) lease.Store {
				s, err := dynamolock.New(sdk, "locks", &dynamolock.Options{Clock: c})
				require.NoError(t, err)
				return s
			},
			erase: func(t *testing.T, key string) {
				old, err := sdk.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
					TableName: aws.String("locks"), ReturnValues: types.ReturnValueAllOld,
					Key: map[string]types.AttributeValue{"name": &types.AttributeValueMemberS{Value: "\x1f" + key}},
				})
				require.NoError(t, err)
				require.NotEmpty(t, old.Attributes, "%s is not there", key)
			},
		}
	}},
	{name: "azure", minTTL: bloblease.MinTTL, slack: 3 * time.Second, open: func(t *testing.T) service {
		wire := emulator.Transport(blobfake.New("locks"), nil)
		return service{connect: func(c lease.Clock) lease.Store {
			api, err := container.NewClientWithNoCredential("http://blob.invalid/account/locks", &container.ClientOptions{
				ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: wire}, Retry: policy.RetryOptions{MaxRetries: -1}},
			})
			require.NoError(t, err)
			s, err := bloblease.New(api, &bloblease.Options{Clock: c})
			require.NoError(t, err)
			return s
		}}
	}},
}

// consul is Consul in this process. Its sessions end up to a TTL late, and their locks rest for a lock-delay after that.
var consul = backend{name: "consul", minTTL: 2 * time.Second, slack: 20 * time.Second, open: func(t *testing.T) service {
	server := consulfake.New(&consulfake.Options{MinTTL: time.Second})
	wire := emulator.Transport(server, nil)
	return service{connect: func(c lease.Clock) lease.Store {
		s, err := consullock.New(&api.Config{Address: "consul.invalid:8500", Scheme: "http", HttpClient: &http.Client{Transport: wire}},
			&consullock.Options{MinTTL: time.Second, Clock: c})
		require.NoError(t, err)
		return s
	}}
}}

// onEveryStore runs a case on every backend, each in a bubble of its own.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, b := range append(backends, consul) {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, b, test)
		})
	}
}

// world is one lock service, the workers that use it, and what they did.
type world struct {
	t       *testing.T
	backend backend
	service
	journal *journal
	ttl     time.Duration
	real    bool // not in a bubble
	hosts   []*host
}

func newWorld(t *testing.T, b backend) *world {
	t.Helper()
	w := &world{t: t, backend: b, service: b.open(t), journal: newJournal(), ttl: max(6*time.Second, b.minTTL)}
	t.Cleanup(w.close) // also after a failure: the bubble waits for all goroutines
	return w
}

// inMemory is for what does not depend on the store.
func inMemory(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inBubble(t, backends[0], test)
}

// withDeletion is on a store whose records can be deleted behind its back.
func withDeletion(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inBubble(t, backends[1], test)
}

func inBubble(t *testing.T, b backend, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, b)
		test(t, w)
		w.close()
		w.journal.check(t)
	})
}

// takeover is the longest time from a worker's death until its shards run elsewhere: its lease, the look of its watcher, the
// quotas, the claims.
func (w *world) takeover() time.Duration { return 3*w.ttl + w.backend.slack }

func (w *world) close() {
	hosts := w.hosts
	w.hosts = nil
	for _, h := range hosts {
		_ = h.stop()
		_ = h.client.Close(context.Background()) // hosts that were killed cannot release
	}
}

// host is a worker's process: a client, and the network between it and the service.
type host struct {
	w      *world
	name   string
	client *lease.Client
	wire   *wire
	worker *shard.Worker
	killed chan struct{}
	cancel context.CancelFunc
	ended  chan error

	mu     sync.Mutex
	events []lease.Event
}

type config struct {
	source  shard.Source
	opt     shard.Options
	ttl     time.Duration
	holder  string
	clock   lease.Clock
	fn      func(h *host) shard.Func
	wire    hook
	observe func(lease.Event)
}

// host starts a worker.
func (w *world) host(c config) *host {
	w.t.Helper()
	h := &host{w: w, name: fmt.Sprintf("w%d", len(w.hosts)+1), killed: make(chan struct{}), ended: make(chan error, 1)}
	if c.ttl == 0 {
		c.ttl = w.ttl
	}
	if c.holder == "" {
		c.holder = h.name
	}
	if c.clock == nil {
		c.clock = lease.SystemClock
	}
	h.wire = newWire(w.connect(c.clock))
	h.wire.intercept(c.wire)
	var err error
	h.client, err = lease.New(h.wire, &lease.Options{TTL: c.ttl, Holder: c.holder, Observer: lease.ObserverFunc(func(e lease.Event) {
		h.mu.Lock()
		h.events = append(h.events, e)
		h.mu.Unlock()
		if c.observe != nil {
			c.observe(e)
		}
	})})
	require.NoError(w.t, err)
	h.worker, err = shard.New(h.client, groupName, c.source, &c.opt)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	fn := h.process
	if c.fn != nil {
		fn = c.fn(h)
	}
	w.hosts = append(w.hosts, h)
	go func() { h.ended <- h.worker.Run(ctx, fn) }()
	return h
}

// stop is SIGTERM: it returns when the worker has left.
func (h *host) stop() error {
	h.cancel()
	err := <-h.ended
	h.ended <- err
	return err
}

// kill is SIGKILL: nothing is sent any more, and functions stop where they stand.
func (h *host) kill() {
	h.wire.kill()
	close(h.killed)
}

func (h *host) saw(kind lease.EventKind) (out []lease.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

var errKilled = errors.New("the process was killed")

// batch is how long process takes for one batch of a shard's records.
const batch = 300 * time.Millisecond

// process works on a shard batch by batch, of one record each, and stores a checkpoint after each.
func (h *host) process(ctx context.Context, s *shard.Shard) error {
	select {
	case <-h.killed:
		return errKilled
	default:
	}
	span := h.w.journal.begin(h, s)
	defer span.finish()
	for next := number(s.Position()) + 1; ; next++ {
		select {
		case <-h.killed:
			return errKilled
		case <-s.Stopping():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(batch):
		}
		select {
		case <-h.killed:
			return errKilled
		default:
		}
		span.did(next)
		if err := s.Checkpoint(ctx, strconv.Itoa(next)); err != nil {
			return err
		}
	}
}

func number(position string) int {
	n, _ := strconv.Atoi(position)
	return n
}

func ids(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("shard-%03d", i)
	}
	return out
}

// spread is the difference between the largest and the smallest.
func spread(loads []int) int {
	low, high := loads[0], loads[0]
	for _, n := range loads {
		low, high = min(low, n), max(high, n)
	}
	return high - low
}

// settle waits until everybody else waits, so that what they have written can be read.
func (w *world) settle() {
	if !w.real {
		synctest.Wait()
	}
}

// sleep is time.Sleep and settle.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	w.settle()
}

// eventually waits in virtual time for cond, for at most d, and tells how long it took.
func (w *world) eventually(d time.Duration, what string, cond func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for w.settle(); !cond(); w.settle() {
		if time.Since(began) > d {
			w.t.Errorf("%s: not within %v", what, d)
			for i, h := range w.hosts {
				w.t.Logf("w%d has %d shards", i+1, w.journal.loads(h)[0])
				for _, e := range h.saw(shard.GroupFailed) {
					w.t.Logf("w%d: %v %v", i+1, e.Name, e.Err)
				}
			}
			return time.Since(began)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(began)
}
