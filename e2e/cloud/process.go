//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// kill ends all processes of the function with SIGKILL, as a lost host would, and says how many there were.
func (s *stack) kill() (int, error) {
	pids, err := s.processes()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return 0, fmt.Errorf("kill the function's process %d: %w", pid, err)
		}
	}
	return len(pids), err
}

// processes are those of the function. They are known by the name in their environment.
func (s *stack) processes() ([]int, error) {
	mark := []byte("AWS_LAMBDA_FUNCTION_NAME=" + s.outputs["FunctionName"])
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, path := range paths {
		env, err := os.ReadFile(path) //nolint:gosec // of /proc
		if err != nil || !hasEntry(env, mark) {
			continue // another user's, or gone
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func hasEntry(env, entry []byte) bool {
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(e, entry) {
			return true
		}
	}
	return false
}
