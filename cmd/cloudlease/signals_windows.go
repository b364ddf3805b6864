package main

import (
	"os"
	"syscall"
)

const (
	terminate  = syscall.SIGTERM
	brokenPipe = syscall.SIGPIPE
)

// passed are the signals that run takes.
var passed = []os.Signal{os.Interrupt}

func harmless(os.Signal) bool { return false }

func number(os.Signal) int { return 2 }
