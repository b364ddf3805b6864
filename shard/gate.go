package shard

import "context"

// gate keeps a worker's writes to its shards' records from crowding out the renewal of its lease: so many are under way at once,
// those that wait to be tried again included.
type gate chan struct{}

const gatePlaces = 16

func newGate() gate { return make(gate, gatePlaces) }

// pass calls f when there is a place. It returns false if ctx ended before.
func (g gate) pass(ctx context.Context, f func()) bool {
	select {
	case g <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-g }()
	f()
	return true
}
