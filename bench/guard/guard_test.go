package guard_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

var update = flag.Bool("update", false, "write guard.json anew")

const file = "../guard.json"

// costs are what is guarded.
type costs struct {
	Requests    map[string]string  `json:"requests"`    // by operation, what is sent, in order
	Allocations map[string]float64 `json:"allocations"` // by operation, per call, client and SDK together
}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

func TestGuard(t *testing.T) {
	have := costs{Requests: map[string]string{}, Allocations: map[string]float64{}}
	for _, engine := range engines {
		synctest.Test(t, func(t *testing.T) { engine.requests(t, have.Requests) })
		synctest.Test(t, func(t *testing.T) { engine.deadLock(t, have.Requests) })
		engine.allocations(t, have.Allocations)
	}
	if *update {
		b, err := json.MarshalIndent(have, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, append(b, '\n'), 0o644)) //nolint:gosec // it is committed
		return
	}
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var want costs
	require.NoError(t, json.Unmarshal(b, &want))
	for op, sent := range want.Requests {
		if have.Requests[op] != sent {
			t.Errorf("%s sends %q, it should be %q", op, have.Requests[op], sent)
		}
	}
	for op := range have.Requests {
		if _, known := want.Requests[op]; !known {
			t.Errorf("%s is not in guard.json", op)
		}
	}
	const tolerance = 0.02
	for op, n := range want.Allocations {
		if got := have.Allocations[op]; got > n*(1+tolerance) || got < n*(1-tolerance) {
			t.Errorf("%s allocates %.0f times, it should be %.0f give or take 2 %%", op, got, n)
		}
	}
	require.Len(t, have.Allocations, len(want.Allocations))
	if t.Failed() {
		t.Log("if the change is meant, run make bench-guard UPDATE=1 and commit bench/guard.json")
	}
}

func acquire(t *testing.T, c *lease.Client, name string) *lease.Lease {
	t.Helper()
	l, err := c.TryAcquire(t.Context(), name)
	require.NoError(t, err)
	return l
}

func held(t *testing.T, c *lease.Client, name string) {
	t.Helper()
	_, err := c.TryAcquire(t.Context(), name)
	require.ErrorIs(t, err, lease.ErrHeld)
}

// requests plays every operation in virtual time and notes what it sends.
func (e engine) requests(t *testing.T, sent map[string]string) {
	service := e.service()
	a, wireA := e.client(t, service)
	b, wireB := e.client(t, service)
	note := func(op string, w *wire) { sent[e.name+" "+op] = w.take() }

	l := acquire(t, a, "x")
	note("first acquire of a lock", wireA)
	held(t, b, "x")
	note("cold fail fast", wireB)
	held(t, b, "x")
	note("fail fast", wireB)
	_, err := a.Store().Renew(t.Context(), l.Grant())
	require.NoError(t, err)
	note("renew", wireA)
	require.NoError(t, l.Save(t.Context(), []byte("v")))
	note("save", wireA)
	require.NoError(t, l.Release(t.Context()))
	note("release", wireA)
	l = acquire(t, a, "x")
	note("acquire", wireA)
	require.NoError(t, l.Release(t.Context()))
	wireA.take()
	time.Sleep(10 * time.Second) // a token is a time: an acquire in the very second of the last one has to ask twice
	l = acquire(t, b, "x")
	note("acquire what another released", wireB)
	require.NoError(t, l.Release(t.Context()))
	wireB.take()
	c, wireC := e.client(t, service)
	l = acquire(t, c, "x")
	note("cold acquire", wireC)
	require.NoError(t, l.Release(t.Context()))
	wireC.take()
	_, err = a.Inspect(t.Context(), "x")
	require.NoError(t, err)
	note("inspect", wireA)

	e.deliveries(t, service, a, wireA, note)
	for _, x := range []*lease.Client{a, b, c} {
		require.NoError(t, x.Close(t.Context()))
	}
	synctest.Wait()
}

// deliveries plays a job's occurrences.
func (e engine) deliveries(t *testing.T, service service, a *lease.Client, wireA *wire, note func(string, *wire)) {
	at := time.Now().Add(-time.Hour)
	run := func(c *lease.Client, want singleton.Outcome) {
		job, err := singleton.New(c, "job", nil)
		require.NoError(t, err)
		res, err := job.Run(t.Context(), at, func(context.Context, *lease.Lease) error { return nil })
		require.NoError(t, err)
		require.Equal(t, want, res.Outcome)
	}
	run(a, singleton.Ran)
	at = at.Add(time.Minute)
	wireA.take()
	run(a, singleton.Ran)
	note("run of an occurrence", wireA)
	run(a, singleton.AlreadyDone)
	note("another delivery of it", wireA)
	d, wireD := e.client(t, service)
	run(d, singleton.AlreadyDone)
	note("another delivery of it, cold", wireD)
	at = at.Add(time.Minute)
	f, wireF := e.client(t, service)
	run(f, singleton.Ran)
	note("run of an occurrence, cold", wireF)
	require.NoError(t, d.Close(t.Context()))
	require.NoError(t, f.Close(t.Context()))
}

// deadLock takes locks over whose holder is dead.
func (e engine) deadLock(t *testing.T, sent map[string]string) {
	service := e.service()
	warm, wireW := e.client(t, service)
	crash := func(name string) {
		store, _ := e.store(t, service)
		_, err := store.TryAcquire(t.Context(), lease.Request{Name: name, Holder: "dead", TTL: e.ttl, Attempt: name, Since: lease.SystemClock()})
		require.NoError(t, err)
	}
	for _, name := range []string{"x", "y"} {
		crash(name)
	}
	held(t, warm, "x")
	wireW.take()
	time.Sleep(4 * e.ttl)
	l := acquire(t, warm, "x")
	sent[e.name+" take a dead lock that was seen held"] = wireW.take()
	require.NoError(t, l.Release(t.Context()))
	cold, wireC := e.client(t, service)
	l = acquire(t, cold, "y")
	sent[e.name+" take a dead lock, cold"] = wireC.take()
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, warm.Close(t.Context()))
	require.NoError(t, cold.Close(t.Context()))
	synctest.Wait()
}

// allocations counts what operations allocate, the SDK and the fake of the service included, which are the same every time.
func (e engine) allocations(t *testing.T, have map[string]float64) {
	free, taken := e.service(), e.service()
	if e.canned != nil {
		free, taken = e.canned(false), e.canned(true)
	}
	a, _ := e.client(t, free)
	b, _ := e.client(t, taken)
	ctx := t.Context()
	count := func(op string, f func() error) {
		var err error
		one := func() {
			if err == nil {
				err = f()
			}
		}
		for range 20 {
			one()
		}
		have[e.name+" "+op] = testing.AllocsPerRun(200, one)
		require.NoError(t, err, op)
	}
	count("acquire and release", func() error {
		l, err := a.TryAcquire(ctx, "x")
		if err != nil {
			return err
		}
		return l.Release(ctx)
	})
	if e.canned == nil {
		holder, _ := e.client(t, taken)
		acquire(t, holder, "x") // and keeps it
	}
	l := acquire(t, a, "x")
	count("renew", func() error {
		_, err := a.Store().Renew(ctx, l.Grant())
		return err
	})
	count("fail fast", func() error {
		_, err := b.TryAcquire(ctx, "x")
		if !errors.Is(err, lease.ErrHeld) {
			return fmt.Errorf("not held: %w", err)
		}
		return nil
	})
	require.NoError(t, l.Release(ctx))
	job, err := singleton.New(a, "job", nil)
	require.NoError(t, err)
	at := time.Now().Add(-24 * time.Hour)
	count("run of an occurrence", func() error {
		at = at.Add(time.Second)
		_, err := job.Run(ctx, at, func(context.Context, *lease.Lease) error { return nil })
		return err
	})
	require.NoError(t, a.Close(ctx))
	require.NoError(t, b.Close(ctx))
}
