package consullock_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/lease"
)

// TestC7_Floor: keys that were imported into another cluster have a low index. The acquire fails closed, names the command, and
// gives the lock back.
func TestC7_Floor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newService(consulfake.Options{})
		old.SetIndex(1_000_000)
		st := old.host(t, consullock.Options{}).Store
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{Value: []byte("kept")}))

		s := newService(consulfake.Options{})
		for _, key := range old.Keys("cloudlease/") {
			s.Put(key, old.Get(key).Value)
		}
		next := s.host(t, consullock.Options{}).Store
		r := request("x")
		for i := range 2 {
			r.Attempt = fmt.Sprint("attempt ", i)
			_, err = next.TryAcquire(t.Context(), r)
			requireClass(t, err, lease.ErrMisconfigured)
			require.ErrorContains(t, err, fmt.Sprintf("raise its floor to %d or higher", g.Token))
			require.Empty(t, s.Get(lockOfX).Session, "it was given back")
		}
		require.NoError(t, next.RaiseFloor(t.Context(), "x", g.Token))
		r.Attempt = "after the floor was raised"
		again, err := next.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		require.Greater(t, again.Token, g.Token)
		require.Equal(t, "kept", string(again.Value))
		require.NoError(t, next.Release(t.Context(), again, lease.Final{}))
		require.NoError(t, next.Close(t.Context()))
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestFloorSurvivesTheFolder: what an operator raised is not deleted with the locks.
func TestFloorSurvivesTheFolder(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		st := w.store(t, consullock.Options{}, nil)
		require.NoError(t, st.RaiseFloor(t.Context(), "x", 1<<40))
		g, err := st.TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.Greater(t, g.Token, lease.Token(1<<40))
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		_, err = w.root.KV().DeleteTree(w.prefix+"locks/", nil)
		require.NoError(t, err)
		r := request("x")
		r.Attempt = "next"
		next, err := w.store(t, consullock.Options{}, nil).TryAcquire(t.Context(), r)
		require.NoError(t, err)
		require.Greater(t, next.Token, g.Token)
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestMixedDatacenters: keys that were copied from another datacenter are refused.
func TestMixedDatacenters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := map[string]*consullock.Store{}
		services := map[string]*service{}
		for _, dc := range []string{"dc1", "dc2"} {
			services[dc] = newService(consulfake.Options{Datacenter: dc})
			cfg := services[dc].config(nil)
			cfg.Datacenter = dc
			stores[dc] = newStore(t, cfg, consullock.Options{})
		}
		g, err := stores["dc1"].TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		for _, key := range services["dc1"].Keys("cloudlease/") {
			services["dc2"].Put(key, services["dc1"].Get(key).Value)
		}
		_, err = stores["dc2"].TryAcquire(t.Context(), request("x"))
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "its keys come from the datacenter dc1, and this is dc2")
		require.Empty(t, services["dc2"].Get(lockOfX).Session)
		require.NoError(t, stores["dc1"].Release(t.Context(), g, lease.Final{}))

		cfg := services["dc1"].config(nil)
		cfg.Datacenter = "dc3"
		_, err = newStore(t, cfg, consullock.Options{}).TryAcquire(t.Context(), request("x"))
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "No path to datacenter")
		for _, st := range stores {
			require.NoError(t, st.Close(t.Context()))
		}
	})
}
