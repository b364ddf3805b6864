//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("demo: FAILED: it stops and wakes processes with signals that this system does not have; use Linux or macOS")
	os.Exit(1)
}
