package lease_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

func TestLogObserver(t *testing.T) {
	for kind, level := range map[lease.EventKind]string{
		lease.Renewed: "DEBUG", lease.Contended: "DEBUG", lease.Acquired: "INFO", lease.Released: "INFO",
		lease.RenewFailed: "WARN", lease.Jeopardy: "WARN", lease.ReleaseFailed: "WARN", lease.Abandoned: "WARN",
		lease.StoreFailed: "WARN", lease.Namesake: "WARN", lease.Lost: "ERROR", "of a recipe": "WARN",
	} {
		var out bytes.Buffer
		o := lease.LogObserver(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		o.Observe(lease.Event{
			Kind: kind, Name: "x", Holder: "h", Token: 7, Took: time.Second, Err: errors.New("because"),
		})
		require.Contains(t, out.String(), "level="+level+" ", kind)
		require.Contains(t, out.String(), `lock=x holder=h token=7 took=1s err=because`)
		out.Reset()
		o.Observe(lease.Event{Kind: kind, Name: "x", Holder: "h"})
		for _, absent := range []string{"token=", "took=", "tries=", "loss=", "err="} {
			require.NotContains(t, out.String(), absent)
		}
		out.Reset()
		o.Observe(lease.Event{Kind: kind, Name: "x", Tries: 3, Loss: lease.Paused})
		require.Contains(t, out.String(), "tries=3 loss=paused")
	}
}

func TestLogObserverTellsWhatIsNoFault(t *testing.T) {
	var out bytes.Buffer
	lease.LogObserver(slog.New(slog.NewTextHandler(&out, nil))).Observe(lease.Event{Kind: "elected", Name: "x"})
	require.Contains(t, out.String(), "level=INFO ")
}

func TestLogObserverKeepsToTheLevel(t *testing.T) {
	var out bytes.Buffer
	o := lease.LogObserver(slog.New(slog.NewTextHandler(&out, nil)))
	o.Observe(lease.Event{Kind: lease.Renewed, Name: "x"})
	require.Empty(t, out.String())
	o.Observe(lease.Event{Kind: lease.Acquired, Name: "x"})
	require.NotEmpty(t, out.String())
}

func TestLogObserverUsesTheDefaultOfTheMoment(t *testing.T) {
	o := lease.LogObserver(nil)
	var out bytes.Buffer
	old := slog.Default()
	defer slog.SetDefault(old)
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	o.Observe(lease.Event{Kind: lease.Lost, Name: "x"})
	require.Contains(t, out.String(), "lock=x")
}

// TestNothingLoggedIsSecret lets everything happen that is logged and looks for attempts, proofs and values.
func TestNothingLoggedIsSecret(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var out bytes.Buffer
		logged := lease.LogObserver(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		c := w.client(lease.Options{})
		l := w.acquire(c, "x")
		secrets := []string{l.Grant().Attempt, "the value"}
		require.Len(t, secrets[0], 26)
		require.NoError(t, l.Save(t.Context(), []byte("the value")))
		w.faults.Add(leasetest.Rule{Kind: leasetest.DropAnswer, Op: "renew", Nth: 2})
		time.Sleep(ttl)
		_, err := c.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, lease.ErrHeld)
		out.WriteString(err.Error())
		require.NoError(t, l.Release(t.Context()))

		lost := w.acquire(c, "x")
		secrets = append(secrets, lost.Grant().Attempt)
		out1 := w.faults.Add(leasetest.Rule{Kind: leasetest.FailAfter, Failure: leasetest.Internal})
		<-lost.Done()
		out.WriteString(lost.Err().Error())
		err = lost.Release(t.Context())
		require.ErrorIs(t, err, lease.ErrLost)
		out.WriteString(err.Error())
		_, err = c.TryAcquire(t.Context(), "y")
		require.ErrorIs(t, err, lease.ErrInDoubt)
		out.WriteString(err.Error())
		out1.Stop()
		time.Sleep(ttl)

		w.mu.Lock()
		defer w.mu.Unlock()
		kinds := map[lease.EventKind]bool{}
		for _, e := range w.events {
			kinds[e.Kind] = true
			require.Equal(t, c.Holder(), e.Holder)
			logged.Observe(e)
		}
		for _, kind := range []lease.EventKind{
			lease.Acquired, lease.Contended, lease.Renewed, lease.RenewFailed, lease.Jeopardy, lease.Lost, lease.Released,
			lease.Abandoned, lease.StoreFailed,
		} {
			require.True(t, kinds[kind], "%s did not happen", kind)
		}
		for _, s := range secrets {
			require.False(t, strings.Contains(out.String(), s), "%q was logged", s)
		}
	})
}
