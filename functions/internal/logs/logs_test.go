package logs_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/functions/internal/logs"
)

func TestLinesTellTheVersion(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var out bytes.Buffer
	logs.Start(&out)
	slog.Info("a line", slog.String("job", "settlement"))
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, "unknown", line["version"], "this test is not built by internal/dist")
	require.Equal(t, "settlement", line["job"])
}
