//go:build !linux

package scene

import "os/exec"

// dieWithParent does nothing here: a driver ends when its standard input does.
func dieWithParent(*exec.Cmd) {}
