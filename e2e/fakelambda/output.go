//go:build unix

package fakelambda

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// output collects what processes print, line by line.
type output struct {
	onLine func(string)

	mu      sync.Mutex
	partial []byte
	lines   []string
	more    chan struct{} // closed and replaced when lines grows
}

func newOutput(onLine func(string)) *output {
	return &output{onLine: onLine, more: make(chan struct{})}
}

// Write is called by one copier at a time: the environment has one process at a time.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	o.partial = append(o.partial, b...)
	var complete []string
	for {
		line, rest, ok := bytes.Cut(o.partial, []byte("\n"))
		if !ok {
			break
		}
		complete = append(complete, string(line))
		o.partial = rest
	}
	o.mu.Unlock()
	o.add(complete)
	return len(b), nil
}

// flush ends a last line that has no newline.
func (o *output) flush() {
	o.mu.Lock()
	last := string(o.partial)
	o.partial = nil
	o.mu.Unlock()
	if last != "" {
		o.add([]string{last})
	}
}

func (o *output) add(lines []string) {
	if len(lines) == 0 {
		return
	}
	o.mu.Lock()
	o.lines = append(o.lines, lines...)
	close(o.more)
	o.more = make(chan struct{})
	o.mu.Unlock()
	if o.onLine != nil {
		for _, line := range lines {
			o.onLine(line)
		}
	}
}

func (o *output) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.lines)
}

// wait blocks until the nth line with substring is there.
func (o *output) wait(ctx context.Context, n int, substring string) (string, error) {
	for seen, found := 0, 0; ; {
		o.mu.Lock()
		lines, more := o.lines[seen:], o.more
		o.mu.Unlock()
		for _, line := range lines {
			if !strings.Contains(line, substring) {
				continue
			}
			if found++; found == n {
				return line, nil
			}
		}
		seen += len(lines)
		select {
		case <-more:
		case <-ctx.Done():
			all := o.all()
			return "", fmt.Errorf("wait for line %d with %q: %w; %d lines so far, the last ones: %q",
				n, substring, context.Cause(ctx), len(all), all[max(0, len(all)-10):])
		}
	}
}
