//go:build unix

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDemonstration plays it, once.
func TestDemonstration(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "demo.svg")
	var out bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-svg", svg}, &out), out.String())
	require.Contains(t, out.String(), "demo-shards: ok")
	b, err := os.ReadFile(svg)
	require.NoError(t, err)
	wellFormed(t, b)
	require.Equal(t, 2, run(t.Context(), []string{"more"}, io.Discard))
}

func wellFormed(t *testing.T, b []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

// Each thing that is not promised is seen.
func TestCheckSeesFaults(t *testing.T) {
	began := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	at := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
	killed := at(50)
	good := func() (out []write) {
		for n := 1; n <= records; n++ {
			out = append(out, write{at(n), "s", n, 1, "A"})
		}
		return out
	}
	_, _, err := checkWrites("s", good(), killed)
	require.NoError(t, err)
	insert := func(i int, w ...write) []write {
		all := good()
		for k := range all[i:] {
			all[i+k].token = 2
		}
		return append(append(append([]write(nil), all[:i]...), w...), all[i:]...)
	}
	done, repeats, err := checkWrites("s", insert(60, write{at(60), "s", 59, 2, "B"}, write{at(60), "s", 60, 2, "B"}), killed)
	require.NoError(t, err)
	require.Equal(t, records, done)
	require.Equal(t, 2, repeats)
	for name, c := range map[string]struct {
		writes []write
		want   string
	}{
		"left out":         {append(good()[:10], good()[11:]...), "record 12 follows 10"},
		"short":            {good()[:100], "it ends with record 100"},
		"again, no death":  {insert(20, write{at(20), "s", 20, 2, "B"}), "nobody had died"},
		"again, one owner": {append(good(), write{at(130), "s", records, 1, "A"}), "nobody had died"},
		"too many again": {insert(60, write{at(60), "s", 55, 2, "B"}, write{at(60), "s", 56, 2, "B"}, write{at(60), "s", 57, 2, "B"},
			write{at(60), "s", 58, 2, "B"}, write{at(60), "s", 59, 2, "B"}, write{at(60), "s", 60, 2, "B"}), "more than a batch"},
		"a lower token": {append(good(), write{at(130), "s", records + 1, 0, "B"}), "came with token 0 after 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := checkWrites("s", c.writes, killed)
			require.ErrorContains(t, err, c.want)
		})
	}
	spans := []span{{"s", "A", 2, at(0), at(10), false}, {"s", "B", 2, at(5), at(20), true}}
	require.ErrorContains(t, check(story{spans: spans}, killed, io.Discard), "does not follow that of A")
	wellFormed(t, picture(story{spans: spans, writes: good()[:5]}, began, killed))
}
