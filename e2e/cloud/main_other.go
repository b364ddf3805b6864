//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("cloud: it finds the function's process in /proc, which this system does not have; use Linux")
	os.Exit(1)
}
