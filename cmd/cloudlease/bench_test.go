//go:build linux

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkStart is the start of the program and its end, without a store, and the size of the binary as it is released.
func BenchmarkStart(b *testing.B) {
	small := filepath.Join(b.TempDir(), "cloudlease")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", small, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(b, err, string(out))
	info, err := os.Stat(small)
	require.NoError(b, err)
	for b.Loop() {
		require.NoError(b, exec.CommandContext(b.Context(), small, "help", "exit-codes").Run())
	}
	b.ReportMetric(float64(info.Size())/(1<<20), "MiB")
}

// BenchmarkRunAdds is what run adds to the start of its command: the time from the start of the process to the command's first
// instant, without the time that the store took for the acquire, and without what the command takes by itself ("bare-ms").
func BenchmarkRunAdds(b *testing.B) {
	var bare, added time.Duration
	w := newWorld(b)
	n := 0
	for b.Loop() {
		lock := "bench" + strconv.Itoa(n)
		bare += begun(b, w, "date", "+%s%N")
		total := begun(b, w, binary, "run", lock, "--", "date", "+%s%N")
		added += total - w.gate.spent(lock)
		n++
	}
	b.ReportMetric(float64(bare.Microseconds())/float64(n)/1000, "bare-ms")
	b.ReportMetric(float64((added-bare).Microseconds())/float64(n)/1000, "added-ms")
}

// begun runs a command line that prints the instant at which its last program began.
func begun(b *testing.B, w *world, argv ...string) time.Duration {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), argv[0], argv[1:]...)
	cmd.Env = w.env
	at := time.Now()
	out, err := cmd.Output()
	require.NoError(b, err)
	ns, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	require.NoError(b, err)
	return time.Unix(0, ns).Sub(at)
}

// spent is how long the requests for a lock took at the store, but for the release, which is the last.
func (g *gate) spent(lock string) (all time.Duration) {
	requests := g.requests(lock)
	for _, s := range requests[:len(requests)-1] {
		all += s.took
	}
	return all
}
