package consullock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/lease"
)

// TestWhatIsNotReleasedStays: a release that leaves a value keeps the marks, and one that leaves marks keeps the value.
func TestWhatIsNotReleasedStays(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.client(t, lease.Options{}, nil)
		require.NoError(t, acquire(t, c, "x").ReleaseWith(t.Context(), lease.Final{Marks: &lease.Marks{Started: 7, Finished: 6}}))
		require.NoError(t, acquire(t, c, "x").ReleaseWith(t.Context(), lease.Final{Value: []byte("v")}))
		l := acquire(t, c, "x")
		require.Equal(t, lease.Marks{Started: 7, Finished: 6}, l.Marks())
		require.NoError(t, l.ReleaseWith(t.Context(), lease.Final{Marks: &lease.Marks{Started: 9, Finished: 8}}))
		l = acquire(t, c, "x")
		require.Equal(t, "v", string(l.Value()))
		require.Equal(t, lease.Marks{Started: 9, Finished: 8}, l.Marks())
		require.NoError(t, l.Release(t.Context()))
	})
}

// TestForeignKeys: what cannot be read is not guessed, and the lock is given back.
func TestForeignKeys(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		st := w.store(t, consullock.Options{}, nil)
		pair := w.pair("locks/x/kept", "not a note")
		_, err := w.root.KV().Put(pair, nil)
		require.NoError(t, err)
		_, err = st.TryAcquire(t.Context(), request("x"))
		requireClass(t, err, lease.ErrMisconfigured)
		info, err := st.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, lease.Free, info.State)
		_, err = w.root.KV().Put(w.pair("locks/not=escaped/lock", ""), nil)
		require.NoError(t, err)
		var listed error
		for _, err := range st.List(t.Context(), "") {
			listed = err
		}
		requireClass(t, listed, lease.ErrMisconfigured)
		require.NoError(t, st.Close(t.Context()))
	})
}

// TestMarksDuringALockDelay: a delivery that comes while the lock is closed is told what the dead holder had started.
func TestMarksDuringALockDelay(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.client(t, lease.Options{}, nil), w.client(t, lease.Options{}, nil)
		m := lease.Mark{Occurrence: time.Now().Add(-time.Minute).Unix()}
		l, err := a.TryAcquireMark(t.Context(), "x", m)
		require.NoError(t, err)
		_, err = w.root.Session().Destroy(w.session(t, "x"), nil)
		require.NoError(t, err)
		_, err = b.TryAcquireMark(t.Context(), "x", m)
		held, ok := errors.AsType[*lease.HeldError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, l.Marks(), held.Marks)
	})
}
