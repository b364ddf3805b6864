package emulator_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

func TestMinistack(t *testing.T) {
	tests := map[string]func(*testing.T){}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		tests["starts, says why not, and ends"] = ministackStarts
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

func ministackStarts(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	e, err := emulator.StartMinistack(t.Context(), emulator.MinistackOptions{})
	require.NoError(t, err)
	u, err := url.Parse(e.URL)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", u.Hostname())
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)

	_, err = emulator.StartMinistack(t.Context(), emulator.MinistackOptions{Port: port})
	require.ErrorContains(t, err, "Address already in use", "it says why it did not start")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = emulator.StartMinistack(ended, emulator.MinistackOptions{})
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, e.Close())
	require.NoError(t, e.Close(), "closing again says the same")
	<-e.Exited()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left, "its directories went with it")
}
