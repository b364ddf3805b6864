package emulator_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// holdVariable makes this test binary start dynalite, say where it is, and wait to be killed.
const holdVariable = "EMULATOR_TEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holdVariable) != "" {
		e, err := emulator.StartDynalite(context.Background(), emulator.Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(e.URL)
		select {}
	}
	goleak.VerifyTestMain(m)
}

func TestDynaliteSaysWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", "")
	_, err := emulator.StartDynalite(t.Context(), emulator.Options{})
	require.ErrorContains(t, err, "make setup")
}

func TestDynalite(t *testing.T) {
	tests := map[string]func(*testing.T){}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		tests["keeps acknowledged writes over a crash"] = dynaliteKeepsWrites
		tests["survives clients that go away in mid-request"] = dynaliteSurvivesDisconnects
		tests["dies with its parent"] = dynaliteDiesWithParent
		tests["says why it did not start"] = dynaliteSaysWhy
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

func dynaliteKeepsWrites(t *testing.T) {
	options := emulator.Options{DataDir: t.TempDir()}
	first, err := emulator.StartDynalite(t.Context(), options)
	require.NoError(t, err)
	c := emulator.Client(first.URL, nil)
	createTables(t.Context(), t, c)
	kept := with(lock("kept"), item{"version": num("9007199254740991"), "value": bin(1, 2)})
	put(t.Context(), t, c, locks, kept)
	require.NoError(t, first.Close())

	addr, err := net.ResolveTCPAddr("tcp", strings.TrimPrefix(first.URL, "http://"))
	require.NoError(t, err)
	options.Port = addr.Port
	second, err := emulator.StartDynalite(t.Context(), options)
	require.NoError(t, err)
	require.Equal(t, first.URL, second.URL)
	require.Equal(t, kept, get(t.Context(), t, c, locks, lock("kept")))
	require.NoError(t, second.Close())
}

func dynaliteSurvivesDisconnects(t *testing.T) {
	e, err := emulator.StartDynalite(t.Context(), emulator.Options{})
	require.NoError(t, err)
	for range 20 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.URL, "http://"))
		require.NoError(t, err)
		_, err = conn.Write([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"))
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).SetLinger(0)) // close with a reset
		require.NoError(t, conn.Close())
	}
	_, err = emulator.Client(e.URL, nil).ListTables(t.Context(), &dynamodb.ListTablesInput{})
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close(), "closing again says the same")
}

func dynaliteDiesWithParent(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), exe)
	parent.Env = append(os.Environ(), holdVariable+"=1")
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	c := emulator.Client(strings.TrimSpace(url), nil)
	_, err = c.ListTables(t.Context(), &dynamodb.ListTablesInput{})
	require.NoError(t, err)

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	require.Eventually(t, func() bool {
		_, err := c.ListTables(t.Context(), &dynamodb.ListTablesInput{})
		return err != nil
	}, 10*time.Second, 10*time.Millisecond)
}

func dynaliteSaysWhy(t *testing.T) {
	e, err := emulator.StartDynalite(t.Context(), emulator.Options{})
	require.NoError(t, err)
	addr, err := net.ResolveTCPAddr("tcp", strings.TrimPrefix(e.URL, "http://"))
	require.NoError(t, err)
	_, err = emulator.StartDynalite(t.Context(), emulator.Options{Port: addr.Port})
	require.ErrorContains(t, err, "EADDRINUSE")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = emulator.StartDynalite(ended, emulator.Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, e.Close())
}
