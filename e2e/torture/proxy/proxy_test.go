//go:build unix

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain is a service whose operations are its paths. Reads are consistent unless they say "stale".
type plain struct{}

func (plain) Classify(r *http.Request, _ []byte) proxy.Request {
	read := r.Method == http.MethodGet
	return proxy.Request{
		Op: strings.TrimPrefix(r.URL.Path, "/"), Key: r.URL.Path, Read: read, Consistent: r.URL.RawQuery != "stale", Repeatable: !read,
	}
}

func (plain) Answer(kind proxy.Kind, _ *http.Request) proxy.Answer {
	if kind == proxy.Throttle {
		return proxy.Answer{Status: http.StatusTooManyRequests, Body: "slow down"}
	}
	return proxy.Answer{Status: http.StatusInternalServerError, Header: http.Header{"X-Error": {"yes"}}, Body: "failed"}
}

func (plain) Secrets(m proxy.Message, found func(kind, secret string)) {
	found("path", m.URL.Path)
	found("order", m.Header.Get("X-Order"))
	found("body", string(m.Body))
}

// scene is a service behind a proxy.
type scene struct {
	t       *testing.T
	proxy   *proxy.Proxy
	client  *http.Client
	effects atomic.Int64 // requests that reached the service

	mu      sync.Mutex
	log     []proxy.Entry
	secrets []string
}

func (s *scene) secret(kind, secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = append(s.secrets, kind+" "+secret)
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t}
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n := s.effects.Add(1)
		w.Header().Set("X-Length", fmt.Sprintf("%q %v", r.Header.Get("Content-Length"), r.TransferEncoding))
		w.Header().Set("X-Order", string(rune('0'+n)))
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+string(body))
	}))
	t.Cleanup(back.Close)
	p, err := proxy.New(t.Context(), proxy.Options{
		Name: "client", Target: strings.TrimPrefix(back.URL, "http://"), Service: plain{}, Seed: 1, Secret: s.secret, Log: func(e proxy.Entry) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.log = append(s.log, e)
		},
	})
	require.NoError(t, err)
	wire := &http.Transport{}
	t.Cleanup(func() {
		wire.CloseIdleConnections()
		require.NoError(t, p.Close())
	})
	s.proxy, s.client = p, &http.Client{Transport: wire}
	return s
}

// do sends a request and gives the status, the body and the header of the answer.
func (s *scene) do(ctx context.Context, method, path string) (status int, body string, header http.Header, err error) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, s.proxy.URL()+path, strings.NewReader("sent"))
	require.NoError(s.t, err)
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), resp.Header, errors.Join(err, resp.Body.Close())
}

// last is the newest entry of the log, once there are n.
func (s *scene) last(n int) proxy.Entry {
	s.t.Helper()
	var last proxy.Entry
	require.Eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.log) >= n {
			last = s.log[n-1]
		}
		return len(s.log) >= n
	}, 10*time.Second, 5*time.Millisecond)
	return last
}

func TestPasses(t *testing.T) {
	s := newScene(t)
	status, body, header, err := s.do(t.Context(), http.MethodPost, "/locks.write")
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.Equal(t, "POST /locks.write sent", body)
	require.Equal(t, "1", header.Get("X-Order"))
	e := s.last(1)
	require.Equal(t, "locks.write", e.Op)
	require.Equal(t, "client", e.From)
	require.Empty(t, e.Fault)
	require.Equal(t, 200, e.Status)
	require.Equal(t, 1, s.proxy.Stats().Requests)
	require.Equal(t, []string{
		"path /locks.write", "order ", "body sent", // of the request
		"path /locks.write", "order 1", "body POST /locks.write sent",
	}, s.secrets)
}

// A request without a body stays one.
func TestPassesNothing(t *testing.T) {
	s := newScene(t)
	for method, want := range map[string]string{http.MethodHead: `"" []`, http.MethodGet: `"" []`, http.MethodPut: `"0" []`} {
		req, err := http.NewRequestWithContext(t.Context(), method, s.proxy.URL()+"/op", http.NoBody)
		require.NoError(t, err)
		resp, err := s.client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.Header.Get("X-Length"), method)
	}
}

func TestAnswersInsteadOfTheService(t *testing.T) {
	for kind, want := range map[proxy.Kind]int{proxy.Fail: 500, proxy.Throttle: 429} {
		t.Run(string(kind), func(t *testing.T) {
			s := newScene(t)
			rule := s.proxy.Add(proxy.Rule{Kind: kind})
			status, _, _, err := s.do(t.Context(), http.MethodPost, "/op")
			require.NoError(t, err)
			require.Equal(t, want, status)
			require.Zero(t, s.effects.Load())
			require.Equal(t, kind, s.last(1).Fault)
			require.Equal(t, 1, rule.Stop())
			status, _, _, err = s.do(t.Context(), http.MethodPost, "/op")
			require.NoError(t, err)
			require.Equal(t, 200, status, "a stopped rule hits nothing")
			require.Equal(t, 1, s.proxy.Stats().Faults[kind])
		})
	}
}

func TestCutsConnections(t *testing.T) {
	for kind, effects := range map[proxy.Kind]int64{proxy.DropAnswer: 1, proxy.Reset: 0} {
		t.Run(string(kind), func(t *testing.T) {
			s := newScene(t)
			s.proxy.Add(proxy.Rule{Kind: kind})
			_, _, _, err := s.do(t.Context(), http.MethodPost, "/op")
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.Equal(t, effects, s.effects.Load())
			require.Equal(t, kind, s.last(1).Fault)
		})
	}
}

func TestSwallows(t *testing.T) {
	for _, kind := range []proxy.Kind{proxy.BlackHole, proxy.Partition} {
		t.Run(string(kind), func(t *testing.T) {
			s := newScene(t)
			s.proxy.Add(proxy.Rule{Kind: kind})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, _, _, err := s.do(ctx, http.MethodPost, "/op")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Zero(t, s.effects.Load())
			require.Equal(t, kind, s.last(1).Fault)
		})
	}
}

// A partition that begins while a request is at the service swallows its answer.
func TestPartitionSwallowsAnswers(t *testing.T) {
	s := newScene(t)
	s.proxy.Add(proxy.Rule{Kind: proxy.DelayAfter, Delay: 300 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, _, _, err := s.do(ctx, http.MethodPost, "/op")
		done <- err
	}()
	require.Eventually(t, func() bool { return s.effects.Load() == 1 }, 10*time.Second, time.Millisecond)
	s.proxy.Add(proxy.Rule{Kind: proxy.Partition})
	require.ErrorIs(t, <-done, context.DeadlineExceeded)
	require.Equal(t, proxy.Partition, s.last(1).Fault)
}

// A request that was held has its effect although its sender has gone.
func TestDelaysBefore(t *testing.T) {
	s := newScene(t)
	s.proxy.Add(proxy.Rule{Kind: proxy.DelayBefore, Delay: 200 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, _, err := s.do(ctx, http.MethodPost, "/op")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, s.effects.Load())
	e := s.last(1)
	require.EqualValues(t, 1, s.effects.Load())
	require.GreaterOrEqual(t, e.Took, 200*time.Millisecond)
}

func TestDelaysAfter(t *testing.T) {
	s := newScene(t)
	s.proxy.Add(proxy.Rule{Kind: proxy.DelayAfter, Delay: 100 * time.Millisecond})
	before := time.Now()
	status, _, _, err := s.do(t.Context(), http.MethodPost, "/op")
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.GreaterOrEqual(t, time.Since(before), 100*time.Millisecond)
}

func TestDuplicates(t *testing.T) {
	s := newScene(t)
	s.proxy.Add(proxy.Rule{Kind: proxy.Duplicate, Delay: 20 * time.Millisecond})
	_, _, _, err := s.do(t.Context(), http.MethodPost, "/op")
	require.NoError(t, err)
	require.Equal(t, proxy.Duplicate, s.last(2).Fault)
	require.EqualValues(t, 2, s.effects.Load())
	_, _, _, err = s.do(t.Context(), http.MethodGet, "/op")
	require.NoError(t, err)
	require.Empty(t, s.last(3).Fault, "what is not to be repeated is not")
}

func TestShiftsTheDate(t *testing.T) {
	s := newScene(t)
	s.proxy.Add(proxy.Rule{Kind: proxy.WrongDate, Shift: time.Hour})
	_, _, header, err := s.do(t.Context(), http.MethodPost, "/op")
	require.NoError(t, err)
	date, err := http.ParseTime(header.Get("Date"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), date, time.Minute)
}

func TestStaleReads(t *testing.T) {
	s := newScene(t)
	s.proxy.Add(proxy.Rule{Kind: proxy.StaleRead})
	order := func(path string) string {
		_, _, header, err := s.do(t.Context(), http.MethodGet, path)
		require.NoError(t, err)
		return header.Get("X-Order")
	}
	require.Equal(t, "1", order("/op?stale"), "there is nothing older yet")
	require.Equal(t, "2", order("/op"), "a consistent read is never stale")
	require.Equal(t, "1", order("/op?stale"))
	require.Equal(t, 2, s.proxy.Stats().Inconsistent)
	require.Equal(t, 1, s.proxy.Stats().Faults[proxy.StaleRead])
}

func TestOnlyMatchingOperations(t *testing.T) {
	s := newScene(t)
	rule := s.proxy.Add(proxy.Rule{Kind: proxy.Fail, Op: "locks."})
	for path, want := range map[string]int{"/locks.get": 500, "/guarded.get": 200} {
		status, _, _, err := s.do(t.Context(), http.MethodPost, path)
		require.NoError(t, err)
		require.Equal(t, want, status)
	}
	require.Equal(t, 1, rule.Hits())
}

// Two proxies of one seed hit the same requests.
func TestSeed(t *testing.T) {
	pattern := func() string {
		s := newScene(t)
		s.proxy.Add(proxy.Rule{Kind: proxy.Fail, Chance: 0.5})
		var b strings.Builder
		for range 40 {
			status, _, _, err := s.do(t.Context(), http.MethodPost, "/op")
			require.NoError(t, err)
			b.WriteByte(byte('0' + status/100))
		}
		return b.String()
	}
	first := pattern()
	require.Equal(t, first, pattern())
	require.Contains(t, first, "2")
	require.Contains(t, first, "5")
}

// A service that is down looks like a reset, and is logged.
func TestServiceDown(t *testing.T) {
	s := newScene(t)
	down, err := proxy.New(t.Context(), proxy.Options{Target: "127.0.0.1:1", Service: plain{}, Log: func(e proxy.Entry) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, e)
	}})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, down.URL(), http.NoBody)
	require.NoError(t, err)
	resp, err := s.client.Do(req)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	require.Error(t, err)
	require.Contains(t, s.last(1).Err, "refused")
	require.NoError(t, down.Close())
}
