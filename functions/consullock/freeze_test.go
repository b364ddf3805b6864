package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lambdalease"
	"github.com/cloudlease/cloudlease/lease"
)

// wire is the network between one environment of the function and a Consul.
type wire struct {
	next http.RoundTripper

	mu     sync.Mutex
	frozen bool
	cut    int      // how many requests more find their connection gone
	open   int      // requests under way
	sent   []string // the paths of all
	late   []string // of those that a frozen process cannot have sent
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.sent = append(w.sent, r.URL.Path)
	if w.frozen {
		w.late = append(w.late, r.URL.Path)
	}
	cut := w.cut > 0
	if cut {
		w.cut--
	}
	w.open++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open--
	}()
	if cut {
		return nil, &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	}
	return w.next.RoundTrip(r)
}

// created counts the sessions that were made.
func (w *wire) created() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, path := range w.sent {
		if strings.HasSuffix(path, "/session/create") {
			n++
		}
	}
	return n
}

// freeze stops the process for d. Whether it is stopped or has nothing to do comes to the same.
func (w *wire) freeze(t *testing.T, d time.Duration) {
	t.Helper()
	w.set(true)
	time.Sleep(d)
	w.set(false)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Zero(t, w.open, "a request was under way")
	require.Empty(t, w.late, "something goes on between invocations")
}

func (w *wire) set(frozen bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = frozen
}

func (w *wire) disconnect(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = n
}

// environmentOn starts an environment of the function whose requests go through next.
func environmentOn(t *testing.T, next http.RoundTripper) (*lambdalease.Handler, *wire) {
	t.Helper()
	cfg, err := configure(complete.With(nil))
	require.NoError(t, err)
	w := &wire{next: next}
	cfg.consul.HttpClient = &http.Client{Transport: w}
	h, err := open(cfg)
	require.NoError(t, err)
	return h, w
}

// invoke runs the function for the occurrence of now, with a time-out of a minute, and says what it answered.
func invoke(t *testing.T, h *lambdalease.Handler) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := h.Invoke(ctx, fmt.Appendf(nil, `{"occurrence":%q}`, time.Now().UTC().Format(time.RFC3339)))
	return string(out), err
}

// requireFree wants no key locked and no lock-delay to come.
func requireFree(t *testing.T, s *consulfake.Server) {
	t.Helper()
	for _, key := range s.Keys("") {
		require.Empty(t, s.Get(key).Session, "%s is held across invocations", key)
	}
}

func until(t *testing.T, text string) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	time.Sleep(time.Until(at))
}

const ttl = 30 * time.Second // the function's default; a session ends at twice that

// TestFreezes: an environment that is frozen between its invocations works at once when it thaws, holds nothing meanwhile, and makes
// a session only where the last one has ended.
func TestFreezes(t *testing.T) {
	pauses := []struct {
		time    time.Duration
		expires bool                            // the session ends in it
		before  func(*consulfake.Server, *wire) // the thaw
	}{
		{time: 5 * time.Second},
		{time: 20 * time.Second}, // more than half a TTL: the session is renewed
		{time: 50 * time.Second}, // nearly two
		{time: 2*ttl + 10*time.Second, expires: true},
		{time: time.Hour, expires: true},
		{time: 5 * time.Second, before: func(_ *consulfake.Server, w *wire) { w.disconnect(2) }}, // kept connections are gone
		{time: time.Hour, expires: true, before: func(_ *consulfake.Server, w *wire) { w.disconnect(2) }},
		// The session ends and the clocks of the frozen host have stood still.
		{time: 5 * time.Second, expires: true, before: func(s *consulfake.Server, _ *wire) { s.DestroySession(s.Sessions()[0].ID) }},
	}
	synctest.Test(t, func(t *testing.T) {
		until(t, "2026-03-02T00:05:00Z")
		s := fake()
		defer s.Close()
		s.Put("payments/2026-03-01", day())
		h, w := environmentOn(t, emulator.Transport(s, nil))
		expired, most := 0, 0
		for n := range 50 {
			out, err := invoke(t, h)
			require.NoError(t, err, "invocation %d", n)
			require.Contains(t, out, `"count":30`, "invocation %d", n)
			requireFree(t, s)
			most = max(most, len(s.Sessions()))
			p := pauses[n%len(pauses)]
			w.freeze(t, p.time)
			if p.before != nil {
				p.before(s, w)
			}
			if p.expires && n < 49 {
				expired++
			}
		}
		require.Equal(t, 1, most, "sessions at a time")
		require.Equal(t, 1+expired, w.created(), "one of the cold start, and one for each that ended")
		w.freeze(t, 2*ttl)
		require.Empty(t, s.Sessions())
		t.Logf("50 invocations: %d sessions were made, %d of them ended in a freeze, at most %d at a time", w.created(), expired, most)
	})
}

// TestColdStarts: each leaves one session, which ends by itself and keeps nobody from the lock.
func TestColdStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until(t, "2026-03-02T00:05:00Z")
		s := fake()
		defer s.Close()
		s.Put("payments/2026-03-01", day())
		for n := range 10 {
			h, _ := environmentOn(t, emulator.Transport(s, nil))
			out, err := invoke(t, h)
			require.NoError(t, err)
			require.Contains(t, out, `"count":30`)
			requireFree(t, s)
			require.Len(t, s.Sessions(), n+1)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * ttl)
		require.Empty(t, s.Sessions())
	})
}

// answers is a server that is no Consul, or a network that leads nowhere.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// TestNotRun: a service that cannot be asked, or does not let the function in, is an error with a class; the job has not run, nothing
// is left behind, and the ACL token is not told.
func TestNotRun(t *testing.T) {
	headless := fake()
	headless.SetLeader(false)
	withRights := func(p map[string]consulfake.Policy) http.RoundTripper {
		return emulator.Transport(consulfake.New(&consulfake.Options{Node: node, Policies: p}), nil)
	}
	for name, c := range map[string]struct {
		wire  http.RoundTripper
		class error
		says  string
	}{
		"no such token": {withRights(map[string]consulfake.Policy{}), lease.ErrDenied, "ACL token"},
		"no sessions": {
			withRights(map[string]consulfake.Policy{secret: {Keys: policy.Keys}}), lease.ErrDenied, `session "<name of the agent's node>"`,
		},
		"no keys": {
			withRights(map[string]consulfake.Policy{secret: {Sessions: policy.Sessions}}), lease.ErrDenied, `key_prefix "cloudlease/"`,
		},
		"no leader": {emulator.Transport(headless, nil), lease.ErrUnavailable, "No cluster leader"},
		"unreachable": {answers(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}), lease.ErrUnavailable, "check the agent's address"},
		"unknown host": {answers(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "consul.invalid", IsNotFound: true}}
		}), lease.ErrUnavailable, "no such host"},
		"silent": {answers(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), lease.ErrUnavailable, "acquire"},
		"wrong address, which repeats what it was sent": {answers(func(r *http.Request) (*http.Response, error) {
			text := fmt.Sprint("<html>what is ", r.Header, "?</html>")
			return &http.Response{StatusCode: http.StatusNotFound, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
		}), lease.ErrMisconfigured, "check that the address is that of a Consul agent"},
	} {
		t.Run(name, func(t *testing.T) {
			logs := captureLogs(t)
			synctest.Test(t, func(t *testing.T) {
				until(t, "2026-03-02T00:05:00Z")
				h, w := environmentOn(t, c.wire)
				_, err := invoke(t, h)
				require.ErrorIs(t, err, c.class)
				require.ErrorContains(t, err, c.says)
				require.NotContains(t, err.Error(), secret)
				require.NotContains(t, fmt.Sprintf("%+v", err), secret)
				require.NotContains(t, strings.Join(w.sent, " "), "payments", "it has not run")
				w.freeze(t, 3*ttl)
			})
			require.Contains(t, logs.String(), `"outcome":"not-run"`)
			require.NotContains(t, logs.String(), secret)
		})
	}
}

// captureLogs keeps what the function logs.
func captureLogs(t *testing.T) *bytes.Buffer {
	t.Helper()
	var logs bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(&logs, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &logs
}

// TestDeniedInMidJob: a result that may not be written fails the run, which leaves the lock free.
func TestDeniedInMidJob(t *testing.T) {
	logs := captureLogs(t)
	synctest.Test(t, func(t *testing.T) {
		until(t, "2026-03-02T00:05:00Z")
		s := consulfake.New(&consulfake.Options{Node: node, Policies: map[string]consulfake.Policy{secret: {
			Keys: map[string]string{"cloudlease/": "write", "payments/": "read"}, Sessions: policy.Sessions,
		}}})
		defer s.Close()
		s.Put("payments/2026-03-01", day())
		h, _ := environmentOn(t, emulator.Transport(s, nil))
		_, err := invoke(t, h)
		require.ErrorIs(t, err, lease.ErrDenied)
		require.ErrorContains(t, err, `key_prefix "results/"`)
		require.False(t, errors.Is(err, lease.ErrLost))
		requireFree(t, s)
	})
	require.Contains(t, logs.String(), `"outcome":"failed"`)
	require.NotContains(t, logs.String(), secret)
}
