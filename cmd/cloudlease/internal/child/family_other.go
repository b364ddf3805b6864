//go:build unix && !linux

package child

import (
	"os"
	"syscall"
)

// followsAll: only the command's group is waited for.
const followsAll = false

func adopt() {}

func ofItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// strays would be the descendants of root that are not in group; there is no cheap way to find them.
func strays(_, _ int) []int { return nil }

// parentOf would be the parent of another process; there is no portable way to learn it.
func parentOf(int) int { return 0 }
