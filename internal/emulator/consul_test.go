package emulator_test

import (
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// TestConsulVersion: what is built is what the cache says it is.
func TestConsulVersion(t *testing.T) {
	mod, err := os.ReadFile("../../localstack/consul/go.mod")
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`(?m)^\s*(require )?github\.com/hashicorp/consul v`+regexp.QuoteMeta(emulator.ConsulVersion)+`( // indirect)?$`), string(mod))
}

// TestConsulKeepsItsState over a crash, where it was.
func TestConsulKeepsItsState(t *testing.T) {
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return
	}
	ports, err := emulator.FreeConsulPorts()
	require.NoError(t, err)
	o := emulator.ConsulOptions{DataDir: t.TempDir(), Ports: ports, Node: "kept"}
	e, err := emulator.StartConsul(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, emulator.ConsulCall(t.Context(), ports, "", http.MethodPut, "/v1/kv/k", "v", nil))
	require.NoError(t, e.Close())
	e, err = emulator.StartConsul(t.Context(), o)
	require.NoError(t, err)
	var got []struct{ Value []byte }
	require.NoError(t, emulator.ConsulCall(t.Context(), ports, "", http.MethodGet, "/v1/kv/k", "", &got))
	require.Equal(t, "v", string(got[0].Value))
	require.NoError(t, e.Close())
}

// TestConsulVariable: a program that is named and not there is a failure that says so.
func TestConsulVariable(t *testing.T) {
	t.Setenv(emulator.ConsulVariable, t.TempDir()+"/consul")
	began := time.Now()
	_, err := emulator.StartConsul(t.Context(), emulator.ConsulOptions{})
	require.ErrorContains(t, err, emulator.ConsulVariable)
	require.Less(t, time.Since(began), time.Minute)
}
