//go:build linux

package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// journal is the file in which workers write.
type journal struct {
	t    *testing.T
	file string
}

func newJournal(t *testing.T) *journal {
	t.Helper()
	return &journal{t, filepath.Join(t.TempDir(), "journal")}
}

// worker is the command line of a worker.
func (j *journal) worker(options ...string) []string {
	return append([]string{os.Args[0], workerArgument, j.file}, options...)
}

// line is a line of a journal.
type line struct {
	at   time.Time
	text string
}

func (j *journal) lines() (lines []line) {
	text, err := os.ReadFile(j.file)
	if err != nil {
		return nil
	}
	for l := range strings.Lines(string(text)) {
		at, what, _ := strings.Cut(strings.TrimSpace(l), " ")
		ns, err := strconv.ParseInt(at, 10, 64)
		require.NoError(j.t, err)
		lines = append(lines, line{time.Unix(0, ns), what})
	}
	return lines
}

// count is how many lines begin with the words of prefix.
func (j *journal) count(prefix string) (n int) {
	for _, l := range j.lines() {
		if strings.HasPrefix(l.text+" ", prefix+" ") {
			n++
		}
	}
	return n
}

// find waits for the nth line that begins with the words of prefix.
func (j *journal) find(prefix string, nth int) line {
	j.t.Helper()
	var found line
	eventually(j.t, "no line "+prefix, func() bool {
		n := 0
		for _, l := range j.lines() {
			if strings.HasPrefix(l.text+" ", prefix+" ") {
				if n++; n == nth {
					found = l
					return true
				}
			}
		}
		return false
	})
	return found
}

// pid is the process of the nth worker that has begun.
func (j *journal) pid(nth int) int {
	j.t.Helper()
	pid, err := strconv.Atoi(strings.Fields(j.find("begin", nth).text)[1])
	require.NoError(j.t, err)
	return pid
}
