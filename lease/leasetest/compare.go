package leasetest

import (
	"context"
	"testing"
)

// Way is one way to do the same work, such as through a store and through the bare SDK below it.
type Way struct {
	Name string
	Do   func(context.Context) error
}

// Compare runs each of ways as a benchmark of its own, with its allocations and the processor time that it used
// (cpu-ns/op, of all threads, the garbage collector's too; on Unix only). Beside other work on the machine, processor
// times can be compared when times on the wall cannot.
func Compare(b *testing.B, ways ...Way) {
	b.Helper()
	for _, w := range ways {
		b.Run(w.Name, func(b *testing.B) {
			b.ReportAllocs()
			began := cpuTime()
			for b.Loop() {
				if err := w.Do(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			if used := cpuTime() - began; used > 0 {
				b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
			}
		})
	}
}
