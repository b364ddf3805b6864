package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/lease"
)

// stubborn ignores its context and returns when it is let go.
func stubborn(letGo <-chan struct{}) election.Lead {
	return func(context.Context, *lease.Lease) error {
		<-letGo
		return nil
	}
}

// A lead that ignores its context is waited for up to the limit; the lock is never released under it, but ends by itself. Run
// does not stand again before it has returned.
func TestLeadIgnoresItsContext(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		letGo := make(chan struct{})
		limit := 2 * ttl
		a := w.host("a", setup{election: election.Options{StopLimit: limit}}).run(stubborn(letGo))
		leads(t, time.Second, a)
		b := w.host("b", setup{}).run(obey)

		left := time.Now()
		err := a.leave()
		require.ErrorIs(t, err, election.ErrOverrun)
		require.ErrorIs(t, err, lease.ErrLost)
		require.InDelta(t, limit, time.Since(left), float64(200*time.Millisecond))
		require.Equal(t, election.Standing, b.e.Status().State, "renewed for as long as lead may still clean up")
		require.Equal(t, 0, a.count(lease.Released))
		require.Equal(t, 1, a.count(election.Overrun))
		require.ErrorIs(t, a.e.Run(t.Context(), obey), election.ErrOverrun)

		_, took := leads(t, ttl+poll+w.slack, b)
		require.Greater(t, took, ttl/2, "it ends, and is not released")
		require.Equal(t, 0, a.count(lease.Released))
		require.NoError(t, b.leave())

		close(letGo)
		time.Sleep(time.Second)
		a.run(obey)
		leads(t, poll, a)
	})
}

// It returns after the limit and before its lease has ended: then the lock is released at once.
func TestLeadReturnsAfterItsLimit(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		letGo := make(chan struct{})
		a := w.host("a", setup{election: election.Options{StopLimit: time.Second}}).run(stubborn(letGo))
		leads(t, time.Second, a)
		require.ErrorIs(t, a.leave(), election.ErrOverrun)
		close(letGo)
		time.Sleep(time.Second)
		require.Equal(t, 1, a.count(lease.Released))
		info, err := a.client.Inspect(t.Context(), office)
		require.NoError(t, err)
		require.Equal(t, lease.Free, info.State)
	})
}

// A lost term's lead is waited for just as long, and a new term does not begin before.
func TestALostLeadIsWaitedFor(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{election: election.Options{StopLimit: 3 * ttl}})
		a.run(func(ctx context.Context, l *lease.Lease) error {
			<-ctx.Done()
			time.Sleep(2 * ttl)
			return nil
		})
		leads(t, time.Second, a)
		a.wire.set(black)
		time.Sleep(ttl)
		a.wire.set(open)
		time.Sleep(3 * ttl)
		terms := w.book.all()
		require.Len(t, terms, 2)
		require.Equal(t, 2*ttl, terms[0].stop.Sub(terms[0].over))
		require.Greater(t, terms[1].start, terms[0].stop)
	})
}

// The process is ended at the limit of a stop, and when a lost lease ends on the service, whichever is first.
func TestExitAtTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		limit time.Duration
		lose  bool
		want  time.Duration // after the last good renewal was sent, or after the stop
	}{
		"stopped":                        {limit: 2 * ttl, want: 2 * ttl},
		"lost":                           {limit: 2 * ttl, lose: true, want: ttl},
		"lost, with a limit before that": {limit: time.Second, lose: true, want: 4*time.Second + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, w *world) {
				letGo := make(chan struct{})
				defer close(letGo)
				exits := make(chan int, 1)
				a := w.host("a", setup{
					lease:    lease.Options{Margin: 2 * time.Second, Heartbeat: time.Second},
					election: election.Options{StopLimit: c.limit, Exit: func(code int) { exits <- code }},
				}).run(stubborn(letGo))
				leads(t, time.Second, a)
				time.Sleep(2 * ttl)
				since := time.Now()
				if c.lose {
					since = lastRenewal(a)
					a.wire.set(black)
				} else {
					a.stop(errStop)
				}
				require.Equal(t, election.ExitCode, <-exits)
				took := time.Since(since)
				require.LessOrEqual(t, took, c.want+time.Millisecond)
				require.Greater(t, took, c.want-600*time.Millisecond-w.slack)
				<-a.ended
				require.ErrorIs(t, a.err, election.ErrOverrun)
				require.Empty(t, exits, "once")
			})
		})
	}
}

// lastRenewal waits for a renewal of h and returns when it was sent: requests take no time here.
func lastRenewal(h *host) time.Time {
	for n := h.count(lease.Renewed); h.count(lease.Renewed) == n; {
		time.Sleep(time.Millisecond)
	}
	return time.Now()
}

// A lead that obeys is not cut short by Options.Exit.
func TestNoExitInTime(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		a := w.host("a", setup{
			lease:    lease.Options{Margin: time.Second},
			election: election.Options{Exit: func(int) { t.Error("it returned in time") }},
		}).run(func(ctx context.Context, _ *lease.Lease) error {
			<-ctx.Done()
			time.Sleep(500 * time.Millisecond)
			return nil
		})
		leads(t, time.Second, a)
		a.wire.set(black)
		time.Sleep(2 * ttl)
		a.wire.set(open)
		time.Sleep(2 * ttl)
		require.NoError(t, a.leave())
		require.GreaterOrEqual(t, len(w.book.all()), 2)
	})
}
