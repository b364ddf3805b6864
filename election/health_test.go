package election_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/lease"
)

// health asks the host's handler.
func health(t *testing.T, h *host) (code int, body map[string]any) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.e.Health().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
	require.Equal(t, "application/json", rec.Header().Get("Content-Type"))
	require.Less(t, rec.Body.Len(), 512)
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &body))
	require.Equal(t, office, body["election"])
	return rec.Code, body
}

func requireHealth(t *testing.T, h *host, code int, state election.State) map[string]any {
	t.Helper()
	got, body := health(t, h)
	require.Equal(t, code, got, "%v", body)
	require.Equal(t, string(state), body["state"])
	require.Equal(t, code != http.StatusOK, body["fault"] != nil)
	return body
}

func TestHealthOfALife(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{})
		requireHealth(t, a, http.StatusOK, election.Observing)
		a.run(obey)
		leads(t, time.Second, a)
		body := requireHealth(t, a, http.StatusOK, election.Leading)
		require.InDelta(t, 5.4, body["left_seconds"], 2)
		require.Equal(t, a.e.Holder(), body["leader"])

		b := w.host("b", setup{}).run(obey)
		for range 100 { // following is well for as long as it lasts
			time.Sleep(3 * time.Second)
			body = requireHealth(t, b, http.StatusOK, election.Standing)
			require.Equal(t, a.e.Holder(), body["leader"])
			requireHealth(t, a, http.StatusOK, election.Leading)
		}
		require.NoError(t, b.leave())
		requireHealth(t, b, http.StatusServiceUnavailable, election.Stopped)
	})
}

// A store that is out is told, and is no reason to end processes.
func TestHealthInAnOutage(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for _, mode := range []int{dead, black, mute} {
			a := w.host("a", setup{}).run(obey)
			leads(t, 3*ttl, a)
			a.wire.set(mode)
			time.Sleep(3 * ttl)
			for range 100 {
				time.Sleep(time.Second)
				body := requireHealth(t, a, http.StatusOK, election.Standing)
				require.NotEmpty(t, body["store"])
			}
			a.wire.set(open)
			leads(t, 2*ttl, a)
			require.NotContains(t, requireHealth(t, a, http.StatusOK, election.Leading), "store")
			require.NoError(t, a.leave())
		}
	})
}

// A leader that leads on after its lease has ended on the service is not well; while it stops in time, it is.
func TestHealthPastTheDeadline(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		letGo := make(chan struct{})
		a := w.host("a", setup{
			lease:    lease.Options{Margin: 2 * time.Second, Heartbeat: time.Second},
			election: election.Options{StopLimit: 3 * ttl},
		}).run(stubborn(letGo))
		leads(t, time.Second, a)
		r := lastRenewal(a)
		a.wire.set(dead)
		time.Sleep(4500*time.Millisecond - time.Since(r))
		requireHealth(t, a, http.StatusOK, election.Stopping)
		time.Sleep(ttl - time.Since(r))
		requireHealth(t, a, http.StatusServiceUnavailable, election.Stopping)
		time.Sleep(4 * ttl)
		requireHealth(t, a, http.StatusServiceUnavailable, election.Overrunning)
		close(letGo)
		<-a.ended
	})
}

// stuck is a store whose wait ignores its context.
type stuck struct {
	*wire
	letGo chan struct{}
}

func (s stuck) Wait(ctx context.Context, _ *lease.HeldError) error {
	<-s.letGo
	<-ctx.Done()
	return ctx.Err()
}

func TestHealthOfAStuckLoop(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{}).run(obey)
		leads(t, time.Second, a)
		s := stuck{wire: &wire{Store: w.connect()}, letGo: make(chan struct{})}
		c, err := lease.New(s, &lease.Options{TTL: ttl, Observer: lease.ObserverFunc(func(lease.Event) {})})
		require.NoError(t, err)
		e, err := election.New(c, office, nil)
		require.NoError(t, err)
		b := &host{w: w, name: "b", e: e, client: c}
		w.hosts = append(w.hosts, b)
		b.run(obey)
		time.Sleep(ttl)
		requireHealth(t, b, http.StatusOK, election.Standing)
		time.Sleep(4 * ttl)
		body := requireHealth(t, b, http.StatusServiceUnavailable, election.Standing)
		require.Equal(t, "the loop is stuck", body["fault"])
		close(s.letGo)
		time.Sleep(time.Second)
		requireHealth(t, b, http.StatusOK, election.Standing)
	})
}
