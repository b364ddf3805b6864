//go:build unix

package main

import (
	"os"
	"syscall"
)

const (
	terminate  = syscall.SIGTERM
	brokenPipe = syscall.SIGPIPE
)

// passed are the signals that run passes on to its command. Those of job control are the child package's.
var passed = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH,
}

// harmless tells whether a signal leaves a process alone that does not know it.
func harmless(sig os.Signal) bool { return sig == syscall.SIGWINCH }

func number(sig os.Signal) int {
	n, _ := sig.(syscall.Signal)
	return int(n)
}
