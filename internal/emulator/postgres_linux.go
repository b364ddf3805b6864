package emulator

import (
	"os/exec"
	"syscall"
)

// dieWithParentAs lets the process run as another user, unless uid is negative, and lets the kernel end it when this one ends,
// however it ends. On SIGQUIT a PostgreSQL server ends at once and leaves no shared memory behind.
func dieWithParentAs(cmd *exec.Cmd, uid, gid int) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if uid >= 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // a user's ids
	}
}
