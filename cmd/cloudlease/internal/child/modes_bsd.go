//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package child

import "golang.org/x/sys/unix"

const (
	readModes  = unix.TIOCGETA
	writeModes = unix.TIOCSETA
)
