// Package start runs a function as its platform wants it, with JSON logs on stderr.
package start

import (
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/cloudlease/cloudlease/functions/internal/logs"
)

// Lambda serves the handler that open makes of the environment, for the life of the process. SIGTERM reaches it. A function
// that cannot start says why and exits with 1.
func Lambda[H lambda.Handler](open func(getenv func(string) string) (H, error)) {
	logs.Start(os.Stderr)
	handler, err := Open(open, os.Getenv)
	if err != nil {
		os.Exit(1)
	}
	lambda.StartWithOptions(handler, lambda.WithEnableSIGTERM())
}

// Open makes the handler of an environment. The log says why it cannot: an alarm looks for that line.
func Open[H lambda.Handler](open func(getenv func(string) string) (H, error), getenv func(string) string) (H, error) {
	handler, err := open(getenv)
	if err != nil {
		slog.Error("the function cannot start", slog.String("err", err.Error()))
	}
	return handler, err
}
