package singleton_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// "an instant ... more than lease.MaxAhead in the future of a service that tells its time" is lease.ErrInvalid, with
// EveryOccurrence too. Its record would go (Keep counts from now) before the real delivery comes, which would run it once more.
func TestEveryOccurrenceRefusesTheFuture(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		now := w.until("2026-03-02T06:00:00Z")
		h := w.host(6*time.Second, &singleton.Options{EveryOccurrence: true})
		res, err := h.deliver(t.Context(), now.AddDate(1, 0, 0), time.Second, nil)
		t.Logf("%v %v", res.Outcome, err)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}

// AtMostOnce: the run of 06:00 is killed (in doubt); 07:00 fails; the operator clears 07:00 only. A late delivery of 06:00
// does not start it a second time: nobody cleared it.
func TestClearKeepsAnOlderOccurrenceInDoubt(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		six := w.until("2026-03-02T06:00:00Z")
		once := &singleton.Options{Policy: singleton.AtMostOnce}
		a := w.host(6*time.Second, once)
		go func() { _, _ = a.deliver(t.Context(), six, time.Hour, nil) }()
		time.Sleep(time.Second)
		a.kill()
		seven := w.until("2026-03-02T07:00:00Z")
		b := w.host(6*time.Second, once)
		_, err := b.deliver(t.Context(), seven, time.Second, errors.New("no paper"))
		require.Error(t, err)
		require.NoError(t, b.job.Clear(t.Context(), seven))
		res, err := b.deliver(t.Context(), six, time.Second, nil)
		t.Logf("%v %v", res.Outcome, err)
		require.Len(t, w.journal.of(six), 1, "06:00 was started twice")
	})
}
