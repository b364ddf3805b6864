//go:build unix

package main

import (
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
)

// TestPP01_PausedBeforeTheWrite: the instance stops in mid-run; an operator gives its lock to another, which settles the day; the
// first one wakes, and its write is refused.
func TestPP01_PausedBeforeTheWrite(t *testing.T) {
	w := newWorld(t)
	slow := w.start("SETTLEMENT_PACE=300ms")
	first := slow.begin(timer(due))
	held := w.running()
	require.NoError(t, slow.cmd.Process.Signal(syscall.SIGSTOP))
	w.unlock(held)
	w.pay("2026-03-01", 4)
	a := w.start().invoke(timer(due))
	require.Equal(t, "ran", a.outcome())
	require.NoError(t, slow.cmd.Process.Signal(syscall.SIGCONT))
	late := <-first
	require.Equal(t, http.StatusInternalServerError, late.status)
	require.Equal(t, "refused", late.outcome())
	require.Contains(t, late.logs(), "refused")

	guard, err := bloblease.NewGuard(w.container("results"), nil)
	require.NoError(t, err)
	have, err := guard.Get(t.Context(), settlement.Key("2026-03-01"))
	require.NoError(t, err)
	require.JSONEq(t, string(a.ReturnValue), string(have.Value))
	require.Greater(t, have.Token, held.Token)
}
