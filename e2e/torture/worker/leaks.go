//go:build unix

package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// watchLeaks returns a function that tells what was left behind since: goroutines and connections. Empty: nothing.
func watchLeaks() func() string {
	before := goleak.IgnoreCurrent()
	sockets := len(openSockets())
	return func() string {
		var left []string
		if err := goleak.Find(before); err != nil {
			left = append(left, err.Error())
		}
		n := len(openSockets())
		for try := 0; n > sockets && try < 20; try++ { // a connection is closed by a goroutine of its own
			time.Sleep(50 * time.Millisecond)
			n = len(openSockets())
		}
		if n > sockets {
			left = append(left, fmt.Sprintf("%d connections", n-sockets))
		}
		return strings.Join(left, "; ")
	}
}

// openSockets are the sockets of this process, on systems that tell.
func openSockets() []string {
	var found []string
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return nil
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && strings.HasPrefix(to, "socket:") {
			found = append(found, to)
		}
	}
	return found
}
