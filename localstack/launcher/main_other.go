//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("launcher: it locks files and signals processes as this system does not; use Linux or macOS")
	os.Exit(1)
}
