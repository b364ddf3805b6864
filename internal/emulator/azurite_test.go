package emulator_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

func TestAzuriteSaysWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", "")
	_, err := emulator.StartAzurite(t.Context(), emulator.AzuriteOptions{})
	require.ErrorContains(t, err, "make setup")
}

func TestAzurite(t *testing.T) {
	tests := map[string]func(*testing.T){}
	if os.Getenv(emulator.EnginesVariable) == "1" {
		tests["starts, says why not, and ends"] = azuriteStarts
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

func azuriteStarts(t *testing.T) {
	e, err := emulator.StartAzurite(t.Context(), emulator.AzuriteOptions{})
	require.NoError(t, err)
	require.Regexp(t, `^http://127\.0\.0\.1:[0-9]+/devstoreaccount1$`, e.URL)

	_, err = emulator.StartAzurite(t.Context(), emulator.AzuriteOptions{Certificate: "/nowhere.pem", Key: "/nowhere.pem"})
	require.ErrorContains(t, err, "nowhere.pem", "it says why it did not start")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = emulator.StartAzurite(ended, emulator.AzuriteOptions{})
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, e.Close())
	require.NoError(t, e.Close(), "closing again says the same")
}
