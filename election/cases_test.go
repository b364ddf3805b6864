package election_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

// writes are those that one worker sent, and what became of them.
type writes struct {
	mu            sync.Mutex
	sent, refused []time.Time
}

// write sends one write every 100 ms until ctx ends; while it is valid, only if the lease says that it may.
func (w *writes) write(ctx context.Context, l *lease.Lease, g fence.Guard, checked bool) {
	for ctx.Err() == nil {
		if !checked || l.Err() == nil {
			at, err := time.Now(), fence.Put(context.WithoutCancel(ctx), g, l, "addresses", []byte(l.Holder()))
			w.mu.Lock()
			w.sent = append(w.sent, at)
			if err != nil {
				w.refused = append(w.refused, at)
			}
			w.mu.Unlock()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestLE01_WorkingPastTheLease: the leader is cut off, its stop takes 20 s, and one of its workers ignores everything. Nothing is
// sent past the lease by those who ask it, the process can be ended by then, and the fence refuses the rest.
func TestLE01_WorkingPastTheLease(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		store := memlease.New() // what the leader writes to can be reached when the lock service cannot
		exits := make(chan time.Time, 1)
		var obeying, ignoring, next writes
		running, kill := context.WithCancel(t.Context())
		defer kill()
		var workers sync.WaitGroup
		defer workers.Wait()
		defer kill()
		cancels := make(chan time.Time, 1)
		a := w.host("a", setup{
			lease: lease.Options{Margin: 2 * time.Second, Heartbeat: time.Second},
			election: election.Options{Exit: func(code int) {
				require.Equal(t, election.ExitCode, code)
				exits <- time.Now()
			}},
		}).run(func(ctx context.Context, l *lease.Lease) error {
			workers.Go(func() { obeying.write(running, l, store.Guard(), true) })
			workers.Go(func() { ignoring.write(running, l, store.Guard(), false) })
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
			cancels <- time.Now()
			time.Sleep(20 * time.Second)
			return nil
		})
		leads(t, time.Second, a)
		b := w.host("b", setup{}).run(func(ctx context.Context, l *lease.Lease) error {
			next.write(ctx, l, store.Guard(), true)
			return nil
		})
		time.Sleep(2 * ttl)
		r := lastRenewal(a)
		a.wire.set(black)
		exited := <-exits // this test's process goes on, so that the rest can be seen
		require.LessOrEqual(t, exited.Sub(r), ttl)
		leads(t, 2*ttl+3*time.Second, b)
		led := time.Since(r)
		require.GreaterOrEqual(t, led, ttl-time.Millisecond)
		require.Less(t, led, 15*time.Second)
		time.Sleep(5 * time.Second)
		kill()
		workers.Wait()

		told := <-cancels
		require.LessOrEqual(t, told.Sub(r), 4250*time.Millisecond)
		require.LessOrEqual(t, obeying.sent[len(obeying.sent)-1].Sub(r), 4250*time.Millisecond)
		require.Empty(t, obeying.refused)
		next.mu.Lock() // it writes on
		require.Empty(t, next.refused)
		first := next.sent[0]
		next.mu.Unlock()
		for _, at := range ignoring.sent {
			if at.After(first) {
				require.Contains(t, ignoring.refused, at, "sent after the next leader's first write")
			}
		}
		require.NotEmpty(t, ignoring.refused)
	})
}

// TestLE03_PairsFlappingComingBack, each part in a world of its own.
func TestLE03_PairsFlappingComingBack(t *testing.T) {
	for name, part := range map[string]func(*testing.T, *world){
		"a candidate that never won": neverWon, "flapping": flapping, "partition": partition, "in turn": inTurn,
	} {
		t.Run(name, func(t *testing.T) { onEveryStore(t, part) })
	}
}

func neverWon(t *testing.T, w *world) {
	a := w.host("a", setup{}).run(obey)
	leads(t, time.Second, a)
	b := w.host("b", setup{}).run(obey)
	time.Sleep(3 * ttl)
	require.NoError(t, b.leave())
	require.Zero(t, b.count(election.Elected)+b.count(election.StoodDown))
	require.Len(t, w.book.all(), 1)
}

func flapping(t *testing.T, w *world) {
	const ttl = 2 * time.Second
	a := w.host("a", setup{lease: lease.Options{TTL: ttl}}).run(func(ctx context.Context, _ *lease.Lease) error {
		<-ctx.Done()
		time.Sleep(500 * time.Millisecond)
		return nil
	})
	for range 10 {
		a.wire.set(dead)
		time.Sleep(2 * time.Second)
		a.wire.set(open)
		time.Sleep(time.Second)
	}
	leads(t, 4*ttl, a)
	time.Sleep(3 * ttl)
	leads(t, 0, a)
	terms := w.book.all() // the rest is checked for every case
	require.Greater(t, len(terms), 3)
	for i := 1; i < len(terms); i++ {
		require.GreaterOrEqual(t, terms[i].start.Sub(terms[i-1].start), ttl)
	}
	require.Equal(t, len(terms), a.count(election.Elected))
	require.Equal(t, len(terms)-1, a.count(election.StoodDown))
}

func partition(t *testing.T, w *world) {
	for _, mode := range []int{dead, black, mute} {
		a := w.host("a", setup{}).run(obey)
		leads(t, 2*ttl, a)
		time.Sleep(ttl)
		a.wire.set(mode)
		time.Sleep(3 * ttl)
		require.NotEqual(t, election.Leading, a.e.Status().State)
		a.wire.set(open)
		leads(t, 2*ttl, a)
		require.NoError(t, a.leave())
	}
}

// inTurn also asks an observer that is no candidate, and a follower, who leads.
func inTurn(t *testing.T, w *world) {
	step := func(ctx context.Context, _ *lease.Lease) error {
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
		}
		return nil
	}
	w.host("a", setup{}).run(step)
	w.host("b", setup{}).run(step)
	o := w.host("o", setup{})
	changes := o.e.Changes(t.Context())
	var told []election.Leader
	time.Sleep(50 * time.Millisecond) // looks never meet a change at the very instant
	for len(w.book.all()) < 100 {
		before := len(w.book.all())
		time.Sleep(time.Second)
		for _, h := range w.hosts {
			l, err := h.e.Leader(t.Context())
			require.NoError(t, err)
			requireTrue(t, w, l)
		}
		select {
		case l := <-changes:
			told = append(told, l)
		default:
		}
		if terms := w.book.all(); len(terms) == before && terms[before-1].stop.IsZero() { // nothing changed for a second
			require.Equal(t, terms[before-1].token, told[len(told)-1].Token)
		}
	}
	who := map[string]int{}
	for _, s := range w.book.all() {
		who[s.who]++
	}
	require.Equal(t, 50, who["a"], "each lets the other lead")
	require.Greater(t, len(told), 100)
}

// requireTrue finds leaders that do not lead.
func requireTrue(t *testing.T, w *world, l election.Leader) {
	t.Helper()
	terms := w.book.all()
	last := terms[len(terms)-1]
	if last.stop.IsZero() {
		require.Equal(t, last.token, l.Token)
		require.Equal(t, l.Holder[:1], last.who)
		return
	}
	require.Equal(t, election.Leader{}, l)
}

// TestSH06_RollingRestartWithTheSameIdentity: old and new instance have one name and overlap; only one leads, and the other sees
// why it does not. After a kill the next instance takes over with a new token, when the lease has ended.
func TestSH06_RollingRestartWithTheSameIdentity(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		same := setup{lease: lease.Options{Holder: "w-1"}}
		old := w.host("old", same).run(obey)
		leads(t, time.Second, old)
		young := w.host("young", same).run(obey)
		require.NotEqual(t, old.e.Holder(), young.e.Holder())
		for range 20 {
			time.Sleep(time.Second)
			require.Equal(t, election.Leading, old.e.Status().State)
			s := young.e.Status()
			require.Equal(t, election.Standing, s.State)
			require.True(t, s.Leader.Namesake)
			require.Equal(t, old.e.Holder(), s.Leader.Holder)
		}
		require.Len(t, w.book.all(), 1)
		require.Equal(t, 1, young.count(lease.Namesake), "a warning, once")

		require.NoError(t, young.leave())
		old.crash()
		next := w.host("next", same).run(obey)
		_, took := leads(t, 2*ttl+3*time.Second, next)
		require.Greater(t, took, ttl/2)
		terms := w.book.all()
		require.Greater(t, terms[1].token, terms[0].token)
		require.False(t, next.e.Status().Leader.Namesake)
	})
}
