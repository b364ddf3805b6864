package election_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/lease"
)

// A candidate whose terms are short stands back longer each time, up to a limit; a long term ends that.
func TestShortTermsAreSpacedOut(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		terms := 0
		w.host("a", setup{election: election.Options{Pause: 2 * time.Second, MaxPause: time.Minute}}).run(
			func(ctx context.Context, _ *lease.Lease) error {
				if terms++; terms == 9 {
					select {
					case <-time.After(2 * ttl):
					case <-ctx.Done():
					}
				}
				return nil
			})
		time.Sleep(6 * time.Minute)
		all := w.book.all()
		var gaps []time.Duration
		for i := 1; i < len(all); i++ {
			gaps = append(gaps, all[i].start.Sub(all[i-1].stop).Round(time.Second))
		}
		want := []int{6, 6, 8, 16, 32, 60, 60, 60, 2, 6, 6, 8}
		require.GreaterOrEqual(t, len(gaps), len(want))
		for i := range want {
			require.InDelta(t, want[i], gaps[i].Seconds(), 0.1, "%v", gaps)
		}
	})
}

// A panic of lead ends the process, as a panic does, and the lock is given back before.
func TestAPanicResigns(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), panics+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 2, exit.ExitCode())
	require.Contains(t, string(out), "acquired\nelected\nreleased\n")
	require.Contains(t, string(out), "panic: the rebalancer is broken")
}
