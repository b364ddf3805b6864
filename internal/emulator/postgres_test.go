package emulator_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

func TestPostgresSaysWhatIsMissing(t *testing.T) {
	t.Setenv(emulator.PostgresVariable, t.TempDir())
	_, err := emulator.StartPostgres(t.Context())
	require.ErrorContains(t, err, "install the Debian package postgresql")
}

// holdPostgres makes TestPostgres of a child process start a server, say where it is, and wait to be killed.
const holdPostgres = "EMULATOR_TEST_HOLD_POSTGRES"

func TestPostgres(t *testing.T) {
	tests := map[string]func(*testing.T){}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		tests["leaves nothing behind"] = postgresLeavesNothing
		tests["start is bounded"] = postgresStartIsBounded
		tests["dies with its parent"] = postgresDiesWithParent
	}
	if os.Getenv(holdPostgres) != "" {
		tests = map[string]func(*testing.T){"held": postgresHeld}
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

// postgresLeavesNothing: while it runs it listens on the loopback address and has a directory; then it has neither.
func postgresLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	require.NoError(t, os.Chmod(temp, 0o711))               //nolint:gosec // the server's user passes through
	require.NoError(t, os.Chmod(filepath.Dir(temp), 0o711)) //nolint:gosec // the same
	t.Setenv("TMPDIR", temp)
	e, err := emulator.StartPostgres(t.Context())
	require.NoError(t, err)
	at, err := url.Parse(e.URL)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", at.Hostname())
	require.NoError(t, dial(t, e.URL))
	made, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Len(t, made, 1)

	require.NoError(t, e.Close())
	require.NoError(t, e.Close(), "closing again says the same")
	require.Error(t, dial(t, e.URL))
	made, err = os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, made)
}

func postgresStartIsBounded(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := emulator.StartPostgres(ended)
	require.ErrorIs(t, err, context.Canceled)
}

func postgresDiesWithParent(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), exe, "-test.run=^TestPostgres$")
	parent.Env = append(os.Environ(), holdPostgres+"=1", "TMPDIR="+passableTempDir(t))
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	at, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	at = strings.TrimSpace(at)
	require.NoError(t, dial(t, at))

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	require.Eventually(t, func() bool { return dial(t, at) != nil }, 10*time.Second, 10*time.Millisecond)
}

func postgresHeld(t *testing.T) {
	e, err := emulator.StartPostgres(t.Context())
	require.NoError(t, err)
	fmt.Println(e.URL)
	select {}
}

// passableTempDir is a directory in which another user's process can work in a directory of its own.
func passableTempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o711))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711))
	return dir
}

// dial tells whether somebody listens at the address in connection.
func dial(t *testing.T, connection string) error {
	t.Helper()
	at, err := url.Parse(connection)
	require.NoError(t, err)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at.Host)
	if err != nil {
		return err
	}
	return conn.Close()
}
