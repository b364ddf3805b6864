package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// followsAll: orphans among the descendants become this process's children, so that their ends are seen.
const followsAll = true

// adopt makes this process the parent of all its descendants that lose theirs.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } // known since Linux 3.4

// ofItsOwn puts a command in a group of its own, and lets the kernel kill it when the thread that forked it dies, also if
// that is before the command runs (the syscall package looks for that).
func ofItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// self is this program, also if its file was replaced meanwhile.
func self() string { return "/proc/self/exe" }

// strays are the descendants of root that are not in group. Those that are made meanwhile may be missing.
func strays(root, group int) []int {
	children := map[int][]int{}
	outside := map[int]bool{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path) //nolint:gosec // a path of the kernel's
		if err != nil {
			continue // it has ended
		}
		pid, parent, pgrp, ok := parseStat(text)
		if ok {
			children[parent] = append(children[parent], pid)
			outside[pid] = pgrp != group
		}
	}
	var found []int
	for line := children[root]; len(line) > 0; {
		pid := line[0]
		line = append(line[1:], children[pid]...)
		if outside[pid] {
			found = append(found, pid)
		}
	}
	return found
}

// parentOf is the parent of a process, 0 if it has none.
func parentOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, parent, _, _ := parseStat(text)
	return parent
}

// parseStat reads /proc/PID/stat: "PID (NAME) STATE PARENT GROUP ...", where the name can hold anything.
func parseStat(text []byte) (pid, parent, pgrp int, ok bool) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return 0, 0, 0, false
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) < 3 {
		return 0, 0, 0, false
	}
	pid, err1 := strconv.Atoi(string(text[:open-1]))
	parent, err2 := strconv.Atoi(string(fields[1]))
	pgrp, err3 := strconv.Atoi(string(fields[2]))
	return pid, parent, pgrp, err1 == nil && err2 == nil && err3 == nil
}
