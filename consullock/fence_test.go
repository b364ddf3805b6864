package consullock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/lease"
)

// TestFence: the user's own transaction passes while the lock has this very grant, and not after.
func TestFence(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		a := w.client(t, lease.Options{}, nil)
		write := func(f consullock.Fence, value string) error {
			ops := append(f.Ops(), f.Set("report", []byte(value)))
			done, resp, _, err := w.root.Txn().Txn(ops, nil)
			require.NoError(t, err)
			if done {
				return nil
			}
			refused := f.Refused(resp.Errors)
			require.Error(t, refused, "it was the fence")
			return refused
		}
		fenceOf := func(l *lease.Lease) consullock.Fence {
			f, err := a.Store().(*consullock.Store).Fence(l)
			require.NoError(t, err)
			return f
		}
		l := acquire(t, a, "x")
		f := fenceOf(l)
		require.NoError(t, write(f, "one"))
		require.NoError(t, l.Save(t.Context(), []byte("v")))
		time.Sleep(ttl / 2) // renewed
		require.NoError(t, write(f, "two"), "neither Save nor a renewal moves it")
		pair, _, err := w.root.KV().Get("report", nil)
		require.NoError(t, err)
		require.EqualValues(t, l.Token(), pair.Flags)

		require.NoError(t, l.Release(t.Context()))
		require.ErrorIs(t, write(f, "late"), lease.ErrStale, "although nobody has the lock")
		next := acquire(t, a, "x") // the same session
		require.ErrorIs(t, write(f, "late"), lease.ErrStale, "although the session has it")
		require.NoError(t, write(fenceOf(next), "three"))
		_, err = w.root.KV().Delete(w.key("x"), nil)
		require.NoError(t, err)
		require.ErrorIs(t, write(fenceOf(next), "late"), lease.ErrStale, "although its holder does not know yet")
		pair, _, err = w.root.KV().Get("report", nil)
		require.NoError(t, err)
		require.Equal(t, "three", string(pair.Value))
	})
}
