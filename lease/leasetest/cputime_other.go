//go:build !unix

package leasetest

import "time"

func cpuTime() time.Duration { return 0 }
