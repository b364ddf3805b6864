package leasetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

func guardCases() []guardCase {
	return []guardCase{
		{"LowerTokenIsRefused", lowerTokenIsRefused},
		{"EqualTokenNeedsTheSameHolder", equalToken},
		{"MissingKey", missingKey},
		{"BadArguments", badArguments},
		{"KeysAreApart", keysAreApart},
		{"BigTokensAndValues", bigTokens},
		{"CheckAndWriteAreOneStep", oneStep},
		{"AnswerLost", putAnswerLost},
		{"LatePutIsRefused", latePut},
		{"EndOfTheContext", putContextEnds},
	}
}

// requireEntry wants key to have this entry.
func (e *guardEnv) requireEntry(g fence.Guard, key, value string, token lease.Token, holder string) {
	e.Helper()
	have, err := g.Get(e.Context(), key)
	require.NoError(e, err)
	require.Equal(e, fence.Entry{Value: []byte(value), Token: token, Holder: holder}, have)
}

// requireStale wants err to be a refusal that tells what it can.
func requireStale(t require.TestingT, err error, key string, token lease.Token) {
	require.ErrorIs(t, err, lease.ErrStale)
	stale, ok := errors.AsType[*fence.StaleError](err)
	require.True(t, ok, "%T: %v", err, err)
	require.Equal(t, key, stale.Key)
	require.Equal(t, token, stale.Token)
	if stale.Seen != 0 {
		require.GreaterOrEqual(t, stale.Seen, token)
	}
}

func lowerTokenIsRefused(e *guardEnv) {
	g, _ := e.guard("a")
	require.NoError(e, g.Put(e.Context(), "k", []byte("five"), 5, "a"))
	require.NoError(e, g.Put(e.Context(), "k", []byte("ten"), 10, "b"))
	for _, token := range []lease.Token{9, 5, 1} {
		for _, holder := range []string{"a", "b"} {
			requireStale(e, g.Put(e.Context(), "k", []byte("late"), token, holder), "k", token)
			e.requireEntry(g, "k", "ten", 10, "b")
		}
	}
	require.NoError(e, g.Put(e.Context(), "k", []byte("eleven"), 11, "a"), "a higher token passes, tokens may have gaps")
	e.requireEntry(g, "k", "eleven", 11, "a")
}

func equalToken(e *guardEnv) {
	g, _ := e.guard("a")
	require.NoError(e, g.Put(e.Context(), "k", []byte("1"), 7, "a"))
	requireStale(e, g.Put(e.Context(), "k", []byte("2"), 7, "b"), "k", 7)
	e.requireEntry(g, "k", "1", 7, "a")
	require.NoError(e, g.Put(e.Context(), "k", []byte("1"), 7, "a"), "the same write again")
	require.NoError(e, g.Put(e.Context(), "k", []byte("3"), 7, "a"), "the holder may write as often as it likes")
	e.requireEntry(g, "k", "3", 7, "a")
}

func missingKey(e *guardEnv) {
	g, _ := e.guard("a")
	have, err := g.Get(e.Context(), "missing")
	require.NoError(e, err)
	require.Zero(e, have.Token)
	require.Empty(e, have.Value)
	require.Empty(e, have.Holder)
}

func badArguments(e *guardEnv) {
	g, f := e.guard("a")
	require.ErrorIs(e, g.Put(e.Context(), "", []byte("v"), 1, "a"), lease.ErrInvalid)
	require.ErrorIs(e, g.Put(e.Context(), "k", []byte("v"), 0, "a"), lease.ErrInvalid)
	require.ErrorIs(e, g.Put(e.Context(), "k", []byte("v"), lease.MaxToken+1, "a"), lease.ErrInvalid)
	require.ErrorIs(e, g.Put(e.Context(), "k", []byte("v"), 1, ""), lease.ErrInvalid)
	require.Empty(e, f.Calls("put"), "a bad argument was sent")
	have, err := g.Get(e.Context(), "k")
	require.NoError(e, err)
	require.Zero(e, have.Token)
}

func keysAreApart(e *guardEnv) {
	g, _ := e.guard("a")
	keys := []string{"a/b", "a_b", "a%2Fb", "a//b", "A/b", "a.b", " a/b", "a/b/", "\u00e9", "e\u0301", "😀"}
	for i, key := range keys {
		require.NoError(e, g.Put(e.Context(), key, []byte(key), lease.Token(100-i), "a"), "%q", key)
	}
	for i, key := range keys {
		e.requireEntry(g, key, key, lease.Token(100-i), "a")
	}
}

func bigTokens(e *guardEnv) {
	g, _ := e.guard("a")
	value := make([]byte, 1000)
	for i := range value {
		value[i] = byte(i)
	}
	require.NoError(e, g.Put(e.Context(), "k", value, lease.MaxToken-1, "a"))
	e.requireEntry(g, "k", string(value), lease.MaxToken-1, "a")
	requireStale(e, g.Put(e.Context(), "k", nil, lease.MaxToken-2, "a"), "k", lease.MaxToken-2)
	require.NoError(e, g.Put(e.Context(), "k", []byte("last"), lease.MaxToken, "a"))
	requireStale(e, g.Put(e.Context(), "k", value, lease.MaxToken-1, "a"), "k", lease.MaxToken-1)
	e.requireEntry(g, "k", "last", lease.MaxToken, "a")
}

// oneStep lets twenty writers and four readers meet; the history says whether a fenced register could have done it.
func oneStep(e *guardEnv) {
	const writers = 20
	guards := make([]fence.Guard, 4)
	for i := range guards {
		guards[i], _ = e.guard(fmt.Sprint("host", i))
	}
	for round := range e.Rounds {
		key := fmt.Sprint("k", round)
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range writers {
			wg.Go(func() {
				token, holder := lease.Token(1+i%10), fmt.Sprint("holder", i/10) // every token has two holders
				<-start
				err := guards[i%4].Put(e.Context(), key, fmt.Appendf(nil, "%d of %s", token, holder), token, holder)
				if err != nil && !errors.Is(err, lease.ErrStale) {
					e.Errorf("put: %v", err)
				}
			})
		}
		for _, g := range guards {
			wg.Go(func() {
				<-start
				for range 3 {
					if _, err := g.Get(e.Context(), key); err != nil {
						e.Errorf("get: %v", err)
					}
				}
			})
		}
		close(start)
		wg.Wait()
		have, err := guards[0].Get(e.Context(), key)
		require.NoError(e, err)
		require.Equal(e, lease.Token(10), have.Token, "the highest token always wins")
	}
}

func putAnswerLost(e *guardEnv) {
	for i, rule := range lostKinds {
		g, f := e.guard("a")
		key := fmt.Sprint("k", i)
		rule.Op = "put"
		lost := f.Add(rule)
		err := g.Put(e.Context(), key, []byte("v"), 7, "a")
		lost.Stop()
		require.ErrorIs(e, err, lease.ErrInDoubt)
		e.requireEntry(g, key, "v", 7, "a")
		require.NoError(e, g.Put(e.Context(), key, []byte("v"), 7, "a"), "the retry of a write that was done")
		e.requireEntry(g, key, "v", 7, "a")
		lost = f.Add(rule)
		err = g.Put(e.Context(), key, []byte("late"), 6, "a")
		lost.Stop()
		require.ErrorIs(e, err, lease.ErrInDoubt)
		e.requireEntry(g, key, "v", 7, "a")
	}
}

// latePut is on the wire when the next holder writes.
func latePut(e *guardEnv) {
	g, f := e.guard("a")
	next, _ := e.guard("b")
	slow := f.Add(Rule{Kind: DelayBefore, Op: "put", Delay: 500 * time.Millisecond})
	errs := make(chan error, 1)
	go func() { errs <- g.Put(e.Context(), "k", []byte("late"), 1, "a") }()
	for slow.Fired() == 0 {
		time.Sleep(time.Millisecond)
	}
	require.NoError(e, next.Put(e.Context(), "k", []byte("new"), 2, "b"))
	requireStale(e, <-errs, "k", 1)
	e.requireEntry(next, "k", "new", 2, "b")
}

func putContextEnds(e *guardEnv) {
	g, f := e.guard("a")
	f.Add(Rule{Kind: BlackHole, Op: "put", Nth: 1})
	ctx, cancel := context.WithTimeout(e.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := g.Put(ctx, "k", []byte("v"), 1, "a")
	requireClass(e, lease.ErrInDoubt, err, "put")
	require.Less(e, time.Since(began), 600*time.Millisecond)
	requireClass(e, lease.ErrUnavailable, g.Put(ctx, "k", []byte("v"), 1, "a"), "put: nothing was sent")
	require.Len(e, f.Calls("put"), 1)
}
