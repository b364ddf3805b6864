//go:build unix

package history_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
)

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w1.jsonl")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := history.NewWriter(f, "w1", 2)
	var writing sync.WaitGroup
	for range 8 {
		writing.Go(func() {
			for range 50 {
				w.Add(history.Event{Kind: history.Acted, Lock: "lock", Token: 7})
			}
		})
	}
	writing.Wait()
	w.Add(history.Event{Kind: history.Obstacle, Worker: "w2", At: 5, Until: 6})
	require.NoError(t, w.Err())
	require.NoError(t, f.Close())
	w.Add(history.Event{})
	require.Error(t, w.Err(), "an event that could not be written is not passed over")

	events, err := history.Read(path)
	require.NoError(t, err)
	require.Len(t, events, 401)
	for _, e := range events[:400] {
		require.Equal(t, history.Event{At: e.At, Kind: history.Acted, Worker: "w1", Life: 2, Lock: "lock", Token: 7}, e)
		require.InDelta(t, history.Now().Seconds(), e.At.Seconds(), 60)
	}
	require.Equal(t, history.Event{At: 5, Kind: history.Obstacle, Worker: "w2", Until: 6}, events[400])
}

// What a killed process has begun to write is not an event; anything else that is none is an error.
func TestBrokenLines(t *testing.T) {
	events, err := history.Decode(strings.NewReader(`{"at":1,"kind":"acted"}` + "\n" + `{"at":2,"ki`))
	require.NoError(t, err)
	require.Len(t, events, 1)
	_, err = history.Decode(strings.NewReader(`{"at":2,"ki` + "\n" + `{"at":1,"kind":"acted"}` + "\n"))
	require.ErrorContains(t, err, "line 1")
	_, err = history.Read(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
