// Package logs makes a function's log what its platform collects: JSON on stderr, each line with the version that wrote it.
package logs

import (
	"io"
	"log/slog"
)

// version is set by the linker's -X, see internal/dist.
var version = "unknown"

// Start makes w the place of slog's default logger, for the life of the process.
func Start(w io.Writer) {
	slog.SetDefault(slog.New(slog.NewJSONHandler(w, nil)).With(slog.String("version", version)))
}
