package lambdalease_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lambdalease"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/singleton"
)

const job = "settlement"

// cloud is a lock service with functions on it.
type cloud struct {
	service *memlease.Service
	metrics bytes.Buffer
	logs    bytes.Buffer

	mu  sync.Mutex
	ops []string // what was sent, with the time
}

func newCloud() *cloud { return &cloud{service: memlease.NewService()} }

// inBubble runs a test in virtual time that begins at the instant of the events' schedule.
func inBubble(t *testing.T, test func(t *testing.T, c *cloud)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)))
		test(t, newCloud())
	})
}

// client is one execution environment's. fault may stand between it and the service.
func (c *cloud) client(t *testing.T, ttl time.Duration, fault func(op string, do func() error) error) *lease.Client {
	t.Helper()
	store := c.service.Store(&memlease.Options{Intercept: func(_ context.Context, op string, do func() error) error {
		c.mu.Lock()
		c.ops = append(c.ops, op)
		c.mu.Unlock()
		if fault != nil {
			return fault(op, do)
		}
		return do()
	}})
	cl, err := lease.New(store, &lease.Options{TTL: ttl, Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(t, err)
	return cl
}

func (c *cloud) sent() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ops := c.ops
	c.ops = nil
	return ops
}

// function is a handler in an environment of its own.
func (c *cloud) function(t *testing.T, handler any, o *lambdalease.Options) *lambdalease.Handler {
	t.Helper()
	if o == nil {
		o = &lambdalease.Options{}
	}
	o.Metrics, o.Logger = &c.metrics, slog.New(slog.NewJSONHandler(&c.logs, nil))
	h, err := lambdalease.New(c.client(t, 6*time.Second, nil), job, handler, o)
	require.NoError(t, err)
	return h
}

// invoke is one invocation with a time-out.
func invoke(t *testing.T, h lambda.Handler, timeout time.Duration, event string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	ctx = lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{AwsRequestID: "request-1"})
	out, err := h.Invoke(ctx, []byte(event))
	return string(out), err
}

// lines decodes JSON lines and forgets them.
func lines(t *testing.T, b *bytes.Buffer) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(b.String()) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m), line)
		all = append(all, m)
	}
	b.Reset()
	return all
}

type report struct {
	Total int    `json:"total"`
	At    string `json:"at"`
}

func settle(ctx context.Context, event map[string]any) (report, error) {
	at, ok := singleton.OccurrenceFromContext(ctx)
	l, held := lease.FromContext(ctx)
	if !ok || !held || l.Err() != nil || l.Token() == 0 || event["source"] != "aws.events" {
		return report{}, errors.New("not what a handler gets")
	}
	time.Sleep(time.Second)
	return report{Total: 42, At: at.Format(time.RFC3339)}, nil
}
