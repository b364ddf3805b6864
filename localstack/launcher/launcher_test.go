//go:build linux

package main_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// launcher is the program under test and its directory.
type launcher struct{ program, dir string }

func build(t *testing.T) launcher {
	t.Helper()
	l := launcher{filepath.Join(t.TempDir(), "launcher"), filepath.Join(t.TempDir(), "run")}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", l.program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return l
}

func (l launcher) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append(args, "-dir", l.dir)
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), l.program, args...).CombinedOutput()
	return string(out), err
}

func (l launcher) pid(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return pid
}

// left are the files in the directory beside the logs and the locks.
func (l launcher) left(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(l.dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if !slices.Contains([]string{"logs", "lock", "command"}, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestLauncherRefuses what it cannot do, before it starts anything.
func TestLauncherRefuses(t *testing.T) {
	l := build(t)
	taken, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"up", "-aws", "0", "-dynalite", port, "-azurite", "0", "-consul", "0"}, "port " + port + ", for dynalite, is in use"},
		{[]string{"sideways"}, "say up, down or endpoints"},
		{[]string{"up", "-free", "now"}, "one word too many"},
	} {
		out, err := l.run(t, test.args...)
		require.Error(t, err)
		require.Contains(t, out, test.says)
		require.Empty(t, l.left(t))
	}
	out, err := l.run(t, "down")
	require.NoError(t, err, out)
	require.Contains(t, out, "does not run")
}

func TestLauncher(t *testing.T) {
	tests := map[string]func(*testing.T){}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		tests["starts once, on the loopback address only, and leaves nothing"] = startsAndEnds
		tests["is killed, and leaves nothing"] = isKilled
		tests["ends when an engine does"] = endsWithItsEngines
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

// up starts on free ports, and returns the supervisor and its engines.
func (l launcher) up(t *testing.T) (supervisor int, tree []int) {
	t.Helper()
	out, err := l.run(t, "up", "-free")
	require.NoError(t, err, out)
	t.Cleanup(func() {
		out, err := l.run(t, "down")
		require.NoError(t, err, out)
	})
	supervisor = l.pid(t)
	return supervisor, descendants(t, supervisor)
}

func startsAndEnds(t *testing.T) {
	l := build(t)
	supervisor, tree := l.up(t)
	require.Len(t, tree, 4)
	env := l.environment(t)
	for _, name := range []string{
		"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "CLOUDLEASE_DYNALITE_URL",
		"AZURE_STORAGE_CONNECTION_STRING", "CONSUL_HTTP_ADDR",
	} {
		require.NotEmpty(t, env[name], name)
	}
	for _, name := range []string{"AWS_ENDPOINT_URL", "CLOUDLEASE_DYNALITE_URL", "CONSUL_HTTP_ADDR"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, env[name], http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err, name)
		require.NoError(t, resp.Body.Close())
	}
	sockets := listening(t, tree)
	require.GreaterOrEqual(t, len(sockets), 4)
	for _, s := range sockets {
		require.True(t, s.IP.IsLoopback(), "%v is reached from elsewhere", s)
	}

	out, err := l.run(t, "up", "-free")
	require.NoError(t, err)
	require.Contains(t, out, "runs already")
	require.Equal(t, supervisor, l.pid(t))

	out, err = l.run(t, "down")
	require.NoError(t, err)
	require.Contains(t, out, "has ended")
	requireGone(t, append(tree, supervisor), sockets)
	require.Empty(t, l.left(t))
}

func isKilled(t *testing.T) {
	l := build(t)
	supervisor, tree := l.up(t)
	sockets := listening(t, tree)
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
	requireGone(t, append(tree, supervisor), sockets)
	out, err := l.run(t, "down")
	require.NoError(t, err)
	require.Contains(t, out, "does not run")
	require.Empty(t, l.left(t))
}

func endsWithItsEngines(t *testing.T) {
	l := build(t)
	supervisor, tree := l.up(t)
	sockets := listening(t, tree)
	require.NoError(t, syscall.Kill(tree[0], syscall.SIGKILL))
	requireGone(t, append(tree, supervisor), sockets)
	log, err := os.ReadFile(filepath.Join(l.dir, "logs", "supervisor.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "has ended by itself")
	require.Empty(t, l.left(t))
}

func (l launcher) environment(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "endpoints.env"))
	require.NoError(t, err)
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = strings.Trim(value, "'")
	}
	return env
}

// alive is the parent of a process, or false if it is gone or only its parent has not noticed.
func alive(pid int) (parent int, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	parent, err = strconv.Atoi(fields[1])
	return parent, err == nil && fields[0] != "Z" && fields[0] != "X"
}

// descendants are all processes below one.
func descendants(t *testing.T, root int) []int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	children := map[int][]int{}
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(path))
		require.NoError(t, err)
		if parent, ok := alive(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	var all []int
	for next := children[root]; len(next) > 0; next = next[1:] {
		all = append(all, next[0])
		next = append(next, children[next[0]]...)
	}
	return all
}

// listening are the addresses at which processes listen, as the kernel says.
func listening(t *testing.T, pids []int) []*net.TCPAddr {
	t.Helper()
	inodes := map[string]bool{}
	for _, pid := range pids {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		require.NoError(t, err)
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
				inodes[strings.Trim(to, "socket:[]")] = true
			}
		}
	}
	var found []*net.TCPAddr
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == "0A" && inodes[fields[9]] {
				found = append(found, address(t, fields[1]))
			}
		}
	}
	return found
}

// address reads what the kernel writes: the words of the IP in this machine's order, and the port.
func address(t *testing.T, text string) *net.TCPAddr {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	var ip net.IP
	for at := 0; at < len(host); at += 8 {
		word, err := strconv.ParseUint(host[at:at+8], 16, 32)
		require.NoError(t, err)
		ip = append(ip, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
	}
	n, err := strconv.ParseUint(port, 16, 16)
	require.NoError(t, err)
	return &net.TCPAddr{IP: ip, Port: int(n)}
}

// requireGone waits until none of the processes is there, and then wants their ports to be free.
func requireGone(t *testing.T, pids []int, sockets []*net.TCPAddr) {
	t.Helper()
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { _, ok := alive(pid); return ok })
	}, time.Minute, 20*time.Millisecond, "processes are left over")
	for _, s := range sockets {
		// A process that is seen to be gone may have threads that end later, and a free port may be somebody's for a moment.
		require.Eventually(t, func() bool {
			l, err := net.ListenTCP("tcp", s)
			return err == nil && l.Close() == nil
		}, 20*time.Second, 50*time.Millisecond, "the port %v is not free", s)
	}
}
