package child

import "golang.org/x/sys/unix"

const (
	readModes  = unix.TCGETS
	writeModes = unix.TCSETS
)
