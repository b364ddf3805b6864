package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill the process when the thread that started it ends, however this process ends.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
