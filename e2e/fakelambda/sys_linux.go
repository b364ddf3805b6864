package fakelambda

import "syscall"

// attributes put the process into a group of its own and end it with the thread that started it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStop returns when all threads of a child that was sent SIGSTOP stand still, or it has exited. The child stays waitable.
func awaitStop(pid int) {
	const byPid = 1 // P_PID
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPid, uintptr(pid), 0, syscall.WSTOPPED|syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if err != syscall.EINTR {
			return
		}
	}
}
