package election_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHandOverTime measures 200 hand-overs to a waiting follower: with the default TTL none comes near it.
func TestHandOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, book: &book{}}
		w.connect, w.slack = memory(t)
		var s setup
		s.lease.TTL = 30 * time.Second
		a, b := w.host("a", s).run(obey), w.host("b", s)
		leads(t, time.Second, a)
		var took []time.Duration
		for range 200 {
			b.run(obey)
			time.Sleep(17 * time.Second)
			require.NoError(t, a.leave())
			_, d := leads(t, poll+100*time.Millisecond, b)
			took = append(took, d)
			a, b = b, a
		}
		slices.Sort(took)
		t.Logf("median %v, 90 %% %v, longest %v", took[100], took[180], took[199])
		require.Less(t, took[100], time.Second)
		w.close()
		w.book.check(t)
	})
}
