//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("torture: FAILED: it stops and kills processes with signals that this system does not have; use Linux or macOS")
	os.Exit(1)
}
