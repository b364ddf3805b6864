package lambdalease_test

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The runtime's signal goroutine starts with the first use and stays. It must not start inside a bubble, whose time
	// would stand still for it.
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	signal.Stop(c)
	goleak.VerifyTestMain(m)
}
