package shard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/shard"
)

func TestSH01_HandOver(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		source := shard.Static(ids(8)...)
		a := w.host(config{source: source})
		w.eventually(w.ttl, "w1 has all", func() bool { return w.journal.loads(a)[0] == 8 })
		time.Sleep(5 * time.Second)
		joined := time.Now()
		b := w.host(config{source: source})
		took := w.eventually(3*w.ttl, "both have half", func() bool { return w.journal.loads(a)[0] == 4 && w.journal.loads(b)[0] == 4 })
		t.Logf("balanced %v after the join", took)
		time.Sleep(w.ttl)
		require.Equal(t, 4, w.journal.moves(joined), "not more moves than the newcomer's share")
		require.Empty(t, w.journal.repeats())

		stopped := time.Now()
		require.NoError(t, a.stop())
		interval := b.worker.Options().Interval
		w.eventually(interval*11/10+2*time.Second, "w2 has all", func() bool { return w.journal.loads(b)[0] == 8 })
		t.Logf("w2 has all %v after the stop", time.Since(stopped))
		require.Empty(t, w.journal.repeats(), "the last checkpoint was written")

		c := w.host(config{source: source})
		w.eventually(3*w.ttl, "both have half", func() bool { return w.journal.loads(b)[0] == 4 && w.journal.loads(c)[0] == 4 })
		b.kill()
		took = w.eventually(w.takeover(), "w3 has all", func() bool { return w.journal.loads(c)[0] == 8 })
		t.Logf("w3 has all %v after the kill", took)
		time.Sleep(w.ttl)
		for id, n := range w.journal.repeats() {
			require.LessOrEqual(t, n, 1, "%s: at most one batch is repeated", id)
		}
	})
}
