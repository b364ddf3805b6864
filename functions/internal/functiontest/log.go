package functiontest

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/template"
)

// Log is what a function writes to its log, stderr and stdout, while a test runs.
type Log struct {
	mu     sync.Mutex
	stderr bytes.Buffer
	stdout *os.File
}

// NewLog takes over the process's log, as the functions set it up, and its stdout. Make the function after it.
func NewLog(t *testing.T) *Log {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	require.NoError(t, err)
	l := &Log{stdout: f}
	log, stdout := slog.Default(), os.Stdout
	slog.SetDefault(slog.New(slog.NewJSONHandler(l, nil)))
	os.Stdout = f
	t.Cleanup(func() {
		slog.SetDefault(log)
		os.Stdout = stdout
		require.NoError(t, f.Close())
	})
	return l
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stderr.Write(b)
}

// Lines are those that were written so far, and forgets them.
func (l *Log) Lines(t *testing.T) (all []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := os.ReadFile(l.stdout.Name())
	require.NoError(t, err)
	for line := range strings.Lines(l.stderr.String() + string(b)) {
		all = append(all, strings.TrimSuffix(line, "\n"))
	}
	l.stderr.Reset()
	require.NoError(t, l.stdout.Truncate(0))
	_, err = l.stdout.Seek(0, 0)
	require.NoError(t, err)
	return all
}

// Metrics are what the function's metric filters count in its lines, those that are 0 left out.
func Metrics(t *testing.T, s *template.Stack, function string, lines []string) map[string]int {
	t.Helper()
	filters, err := s.Filters(function)
	require.NoError(t, err)
	require.NotEmpty(t, filters)
	n := map[string]int{}
	for _, line := range lines {
		for _, f := range filters {
			if f.Pattern.Match(line) {
				n[f.Metric]++
			}
		}
	}
	return n
}

// RequireMetrics wants the metric filters to count in the lines what want says, and nothing else.
func RequireMetrics(t *testing.T, s *template.Stack, function string, lines []string, want map[string]int) {
	t.Helper()
	require.NotEmpty(t, lines)
	if want == nil {
		want = map[string]int{}
	}
	require.Equal(t, want, Metrics(t, s, function, lines), strings.Join(lines, "\n"))
}
