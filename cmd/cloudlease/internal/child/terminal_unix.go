//go:build unix

package child

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, seen from the wrapper's group. A nil one is no terminal.
type terminal struct {
	fd    int
	own   int  // the wrapper's group
	eager bool // stdin and stdout are the terminal: the command gets it before it asks
	lent  bool // the command had it when it was last stopped, or has it
	modes *unix.Termios
}

func openTerminal(own int) *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd, own: own, eager: IsTerminal(0) && IsTerminal(1)}
	if modes, err := unix.IoctlGetTermios(fd, readModes); err == nil {
		t.modes = modes
	}
	return t
}

// IsTerminal tells whether a descriptor is one of a terminal.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, readModes)
	return err == nil
}

// Width is how many columns the terminal of a descriptor has, or a usual number if it does not tell.
func Width(fd int) int {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// foreground is the group that has the terminal, -1 if that is not known.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// lend gives the terminal to a command that is not to ask for it, or that had it before.
func (t *terminal) lend(group int) {
	if t != nil && (t.eager || t.lent) {
		t.give(group)
	}
}

// give puts group in the foreground if the wrapper's group, or group itself, is there. It tells whether group is.
func (t *terminal) give(group int) bool {
	switch t.foreground() {
	case group:
	case t.own:
		t.put(group)
	default:
		return false
	}
	t.lent = true
	return true
}

// reclaim takes the terminal back from group, with the modes that it had before. It tells whether group had it.
func (t *terminal) reclaim(group int) bool {
	if t == nil || t.foreground() != group {
		return false
	}
	t.put(t.own)
	if t.modes != nil {
		unstopped(func() { _ = unix.IoctlSetTermios(t.fd, writeModes, t.modes) })
	}
	return true
}

// put puts a group in the foreground.
func (t *terminal) put(group int) {
	unstopped(func() { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }) // a terminal that hung up has no foreground
}

// unstopped changes the terminal from the background, which a process may do while it ignores SIGTTOU. It is ignored for that
// alone, because a command inherits what is ignored.
func unstopped(change func()) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	change()
}

// isJob tells whether somebody controls this process's group as a job: a parent of one of its members is in the same session,
// but in another group. Nobody continues a group that is none, and a terminal does not stop it.
func isJob() bool {
	own := unix.Getpgrp()
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for pid := unix.Getppid(); pid > 0; pid = parentOf(pid) {
		group, err := unix.Getpgid(pid)
		if err != nil {
			return false
		}
		if group != own {
			theirs, err := unix.Getsid(pid)
			return err == nil && theirs == session
		}
	}
	return false
}
