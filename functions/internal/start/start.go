// Package start runs a function as its platform wants it, with JSON logs on stderr.
package start

import (
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
)

// Lambda serves the handler that open makes of the environment, for the life of the process. SIGTERM reaches it. A function
// that cannot start says why and exits with 1.
func Lambda[H lambda.Handler](open func(getenv func(string) string) (H, error)) {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	handler, err := open(os.Getenv)
	if err != nil {
		slog.Error("the function cannot start", slog.String("err", err.Error()))
		os.Exit(1)
	}
	lambda.StartWithOptions(handler, lambda.WithEnableSIGTERM())
}
