//go:build linux

package main_test

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// workerArgument makes the test binary a worker: a command to run under a lock, which writes down what happens to it.
const workerArgument = "work-for-a-test"

// work is a worker's life: it writes "begin PID TOKEN", one line for each signal, and "end" after a time. Lines begin with the
// instant in ns. Options: for=DURATION, ignore (TERM does not end it), setsid.
func work(args []string) int {
	file, for_, ignore := args[0], time.Minute, false
	for _, o := range args[1:] {
		switch {
		case o == "ignore":
			ignore = true
		case o == "setsid":
			if _, err := syscall.Setsid(); err != nil {
				return 1
			}
		case strings.HasPrefix(o, "for="):
			for_, _ = time.ParseDuration(o[len("for="):])
		}
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	note(file, "begin %d %s", os.Getpid(), os.Getenv("CLOUDLEASE_TOKEN"))
	end := time.After(for_)
	for {
		select {
		case sig := <-signals:
			note(file, "signal %d", sig)
			if sig == syscall.SIGTERM && !ignore {
				note(file, "end")
				return 0
			}
		case <-end:
			note(file, "end")
			return 0
		}
	}
}

// note appends a line in one write, so that the lines of several workers do not mix.
func note(file, format string, args ...any) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // named by the test
	if err != nil {
		panic(err)
	}
	if _, err := f.WriteString(strconv.FormatInt(time.Now().UnixNano(), 10) + " " + fmt.Sprintf(format, args...) + "\n"); err != nil {
		panic(err)
	}
	_ = f.Close()
}
