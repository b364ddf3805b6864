package lease

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// Jitter spreads d by plus or minus part of it (0 to 1), so that many holders and waiters do not act at one instant. Stores and
// recipes use it. It draws from crypto/rand like all ids of this module: a test that fixes that source fixes everything.
func Jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*spread.Float64()-1)))
}

// spread has no state of its own, so it is safe for concurrent use.
var spread = rand.New(source{}) //nolint:gosec // the source is crypto/rand

type source struct{}

// Uint64 implements rand.Source.
func (source) Uint64() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
