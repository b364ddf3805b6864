//go:build unix && !linux

package fakelambda

import "syscall"

// attributes put the process into a group of its own. Only Linux also ends it with its parent.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitStop trusts that a stop is quick.
func awaitStop(int) {}
