//go:build linux

package main_test

import (
	"bytes"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// shared is a buffer that a program writes to while a test reads it.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestWatch shows changes, and ends with success when it is told to.
func TestWatch(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"table": nil, "json": {"-o", "json"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, j := newWorld(t), newJournal(t)
			var out shared
			watch := w.command(t.Context(), append([]string{"watch", "W", "--interval", "500ms"}, args...)...)
			watch.Stdout, watch.Stderr = &out, &out
			require.NoError(t, watch.Start())
			run := w.start(append([]string{"run", "W/1", "--"}, j.worker()...)...)
			j.find("begin", 1)
			eventually(t, "it is not shown", func() bool { return strings.Contains(out.String(), "held") })
			run.signal(15)
			require.Zero(t, run.end())
			eventually(t, "its end is not shown", func() bool { return strings.Contains(out.String(), "free") })
			require.NoError(t, watch.Process.Signal(syscall.SIGTERM))
			require.NoError(t, watch.Wait(), out.String())
		})
	}
}

// TestWatchOnATerminal draws over what it has drawn, and Ctrl-C ends it.
func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("run", "one", "--", "true")
	s := w.terminal(binary, "watch", "--interval", "500ms")
	s.see(`\x1b\[H\x1b\[2J.*1 lock\(s\)`)
	s.see(`\x1b\[H\x1b\[2J`)
	s.key("\x03")
	require.Zero(t, s.end(), s.text())
}
