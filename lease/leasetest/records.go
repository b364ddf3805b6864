package leasetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

func recordCases() []storeCase {
	return []storeCase{
		{name: "RecordsChangeByCompareAndSwap", run: recordsSwap},
		{name: "RecordsRaceHasOneWinner", run: recordsRace},
		{name: "RecordsAnswerLost", run: recordsAnswerLost},
		{name: "RecordsAreApart", run: recordsAreApart},
	}
}

// records are the host's records, if its store keeps any.
func (h *host) records() (lease.Records, bool) {
	r, ok := h.store.(lease.Records)
	return r, ok
}

func recordsSwap(e *env) {
	a, b := e.host("a"), e.host("b")
	ra, ok := a.records()
	if !ok {
		e.Log("the store keeps no records")
		return
	}
	rb, _ := b.records()
	none, err := ra.Load(e.Context(), "r")
	require.NoError(e, err)
	require.Equal(e, "r", none.Key)
	require.Zero(e, none.Version)
	require.Empty(e, none.Value)
	first, err := ra.Swap(e.Context(), none, []byte("one"), 0)
	require.NoError(e, err)
	require.NotZero(e, first.Version)
	require.Equal(e, "one", string(first.Value))
	have, err := rb.Load(e.Context(), "r")
	require.NoError(e, err)
	require.Equal(e, first, have, "a load sees the newest swap")
	second, err := rb.Swap(e.Context(), have, []byte("two"), time.Hour)
	require.NoError(e, err)
	require.NotEqual(e, first.Version, second.Version)
	for what, old := range map[string]lease.Record{"none": none, "the first": first, "a later": {Key: "r", Version: second.Version + 1}} {
		_, err = ra.Swap(e.Context(), old, []byte("late"), 0)
		require.ErrorIs(e, err, lease.ErrConflict, "swap of %s", what)
	}
	_, err = ra.Swap(e.Context(), lease.Record{Key: "missing", Version: 1}, []byte("v"), 0)
	require.ErrorIs(e, err, lease.ErrConflict, "swap of a record that is not there")
	have, err = ra.Load(e.Context(), "r")
	require.NoError(e, err)
	require.Equal(e, second, have)
	empty, err := ra.Swap(e.Context(), have, nil, 0)
	require.NoError(e, err)
	require.Empty(e, empty.Value)
	have, err = rb.Load(e.Context(), "r")
	require.NoError(e, err)
	require.Equal(e, empty.Version, have.Version)
	require.Empty(e, have.Value)
}

func recordsRace(e *env) {
	hosts := []*host{e.host("a"), e.host("b"), e.host("c"), e.host("d")}
	r, ok := hosts[0].records()
	if !ok {
		e.Log("the store keeps no records")
		return
	}
	rec, err := r.Load(e.Context(), "r")
	require.NoError(e, err)
	for range e.Rounds {
		const racers = 20
		won, errs := make([]lease.Record, racers), make([]error, racers)
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range racers {
			wg.Go(func() {
				r, _ := hosts[i%len(hosts)].records()
				<-start
				won[i], errs[i] = r.Swap(e.Context(), rec, fmt.Append(nil, i), 0)
			})
		}
		close(start)
		wg.Wait()
		winners := 0
		for i, err := range errs {
			if err == nil {
				winners, rec = winners+1, won[i]
				continue
			}
			require.ErrorIs(e, err, lease.ErrConflict)
		}
		require.Equal(e, 1, winners)
		have, err := r.Load(e.Context(), "r")
		require.NoError(e, err)
		require.Equal(e, rec, have)
	}
}

func recordsAnswerLost(e *env) {
	a, b := e.host("a"), e.host("b")
	ra, ok := a.records()
	if !ok {
		e.Log("the store keeps no records")
		return
	}
	rb, _ := b.records()
	e.eachRequest(a, "swap", func(lost *Fault) {
		old, err := ra.Load(e.Context(), "r")
		require.NoError(e, err)
		_, err = ra.Swap(e.Context(), old, []byte("v"), 0)
		if lost.Fired() == 0 {
			require.NoError(e, err)
			return
		}
		lost.Stop()
		require.ErrorIs(e, err, lease.ErrInDoubt)
		have, err := rb.Load(e.Context(), "r")
		require.NoError(e, err)
		require.NotEqual(e, old.Version, have.Version, "the swap was stored")
		_, err = ra.Swap(e.Context(), old, []byte("again"), 0)
		require.ErrorIs(e, err, lease.ErrConflict, "and is not stored again")
	})
}

// recordsAreApart from each other and from the locks, whatever their names.
func recordsAreApart(e *env) {
	a, b := e.host("a"), e.host("b")
	ra, ok := a.records()
	if !ok {
		e.Log("the store keeps no records")
		return
	}
	want := map[string]lease.Record{}
	for _, key := range nastyNames() {
		rec, err := ra.Swap(e.Context(), lease.Record{Key: key}, []byte(key), 0)
		require.NoError(e, err, "%q: it meets another key", key)
		require.Equal(e, key, rec.Key)
		want[key] = rec
	}
	g := a.take("lead")
	require.Equal(e, lease.Held, b.inspect("lead").State)
	require.Equal(e, lease.Absent, b.inspect("a/b").State, "a record is no lock")
	got := map[string]lease.Record{}
	for rec, err := range ra.Scan(e.Context(), "") {
		require.NoError(e, err)
		require.NotContains(e, got, rec.Key, "it was given twice")
		got[rec.Key] = rec
	}
	require.Equal(e, want, got)
	found := 0
	for rec, err := range ra.Scan(e.Context(), "a/") {
		require.NoError(e, err)
		require.Equal(e, want[rec.Key], rec)
		require.Equal(e, "a/", rec.Key[:2])
		found++
	}
	require.Equal(e, 3, found, "a/b, a/B and a//b")
	if lister, ok := a.store.(lease.Lister); ok {
		for info, err := range lister.List(e.Context(), "") {
			require.NoError(e, err)
			require.Equal(e, "lead", info.Name, "a record was listed as a lock")
		}
	}
	bad := a.faults.Add(Rule{Kind: Fail, Failure: Denied})
	var failed error
	for _, err := range ra.Scan(e.Context(), "") {
		failed = err
	}
	bad.Stop()
	require.Error(e, failed, "a scan that failed passes for the whole")
	a.free(g)
}
