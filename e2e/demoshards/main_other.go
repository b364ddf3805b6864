//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("the demonstration stops processes with signals that this system does not have")
	os.Exit(1)
}
