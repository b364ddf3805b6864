//go:build linux

package main_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCL01_ExitCodesOfTheCommand passes a command's own result through, and tells what a shell tells where it does not start.
func TestCL01_ExitCodesOfTheCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600))
	lost := filepath.Join(dir, "lost")
	require.NoError(t, os.WriteFile(lost, []byte("#!/no/such/interpreter\n"), 0o700)) //nolint:gosec // a script
	for name, c := range map[string]struct {
		argv []string
		code int
	}{
		"0":                   {[]string{"true"}, 0},
		"3":                   {[]string{"sh", "-c", "exit 3"}, 3},
		"255":                 {[]string{"sh", "-c", "exit 255"}, 255},
		"no such command":     {[]string{"no-such-command"}, 127},
		"no such file":        {[]string{"/no/such/file"}, 127},
		"no such interpreter": {[]string{lost}, 127},
		"not executable":      {[]string{plain}, 126},
		"a directory":         {[]string{dir}, 126},
		"KILL":                {[]string{"sh", "-c", "kill -KILL $$"}, 137},
		"TERM":                {[]string{"sh", "-c", "kill -TERM $$"}, 143},
		"SEGV":                {[]string{"sh", "-c", "kill -SEGV $$"}, 139},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := w.with("", append([]string{"run", "lock " + name, "--"}, c.argv...)...)
			require.Equal(t, c.code, r.code, r.err)
			require.Empty(t, r.out)
			require.NotContains(t, w.ok("status", "lock "+name), "held")
		})
	}
}

// TestCL01_CodesOfItsOwn: held, store, usage and doubt are told apart, and can be chosen.
func TestCL01_CodesOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := newJournal(t)
	holder := w.start(append([]string{"run", "taken", "--"}, j.worker()...)...)
	j.find("begin", 1)
	dead := "dynamodb://locks?region=eu-west-1&endpoint=http%3A%2F%2F127.0.0.1%3A1"
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"held":                 {[]string{"run", "taken", "--", "true"}, 191, "cloudlease break taken --token"},
		"held, after a wait":   {[]string{"run", "taken", "--wait", "2s", "--", "true"}, 191, "not obtained within 2s"},
		"held, chosen":         {[]string{"run", "taken", "--exit-code", "held=75", "--", "true"}, 75, "is held by"},
		"held, skipped":        {[]string{"run", "taken", "--if-held", "skip", "--", "true"}, 0, "skipped"},
		"unreachable":          {[]string{"run", "x", "--store", dead, "--", "true"}, 192, "check the endpoint and the network"},
		"unreachable, chosen":  {[]string{"run", "x", "--store", dead, "--exit-code", "store=9,held=8", "--", "true"}, 9, "store unavailable"},
		"no table":             {[]string{"run", "x", "--store", w.url + "&home=eu-west-1&profile=", "--ttl", "1s", "--", "true"}, 194, "TTL 1s is outside"},
		"no such flag":         {[]string{"run", "x", "--no-such-flag", "--", "true"}, 194, "unknown flag"},
		"no such command":      {[]string{"rnu", "x"}, 194, "unknown command"},
		"no command":           {[]string{"run", "x"}, 194, "a command behind it"},
		"no dashes":            {[]string{"run", "x", "true"}, 194, "write -- before the command: cloudlease run x -- true"},
		"two names":            {[]string{"run", "x", "y", "--", "true"}, 194, "one NAME"},
		"no name":              {[]string{"run", "--", "true"}, 194, "one NAME"},
		"bad name":             {[]string{"run", "a\nb", "--", "true"}, 194, "control character"},
		"bad code":             {[]string{"run", "x", "--exit-code", "held=256", "--", "true"}, 194, "from 0 to 255"},
		"bad occurrence":       {[]string{"run", "x", "--occurrence", "2026-03-02", "--", "true"}, 194, "no time of day"},
		"policy alone":         {[]string{"run", "x", "--policy", "at-most-once", "--", "true"}, 194, "--policy is for --occurrence"},
		"too long a grace":     {[]string{"run", "x", "--grace", "20s", "--", "true"}, 194, "use --ttl 50s or more"},
		"memory":               {[]string{"run", "x", "--store", "mem://", "--", "true"}, 194, "would exclude nobody"},
		"no store":             {[]string{"run", "x", "--store", "nonsense", "--", "true"}, 194, "has no scheme"},
		"bad output":           {[]string{"list", "-o", "xml"}, 194, "neither table nor json"},
		"missing argument":     {[]string{"status"}, 194, "takes 1 argument"},
		"status, store is out": {[]string{"status", "x", "--store", dead}, 192, "check the endpoint and the network"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.cli(c.args...)
			require.Equal(t, c.code, r.code, r.err)
			require.Contains(t, r.err, c.says)
			require.Empty(t, r.out)
		})
	}
	holder.signal(15)
	require.Zero(t, holder.end())
}

// TestCL01_LostInMidRun: the lock is broken while the command runs.
func TestCL01_LostInMidRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := newJournal(t)
	run := w.start(append([]string{"run", "job", "--ttl", "3s", "--"}, j.worker()...)...)
	pid := j.pid(1)
	w.ok("break", "job", "--token", w.token("job"), "--yes")
	require.Equal(t, 193, run.end(), run.errs)
	require.False(t, alive(pid))
	require.Contains(t, run.errs.String(), "lease lost")
	require.Zero(t, j.count("end"), "there is no grace when the lock may be another's already")
}

// TestCL01_ReleaseFails: the command's result stands, with a warning, or a code that was asked for.
func TestCL01_ReleaseFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		exit, code string
		want       int
	}{
		"by default":             {"0", "held=75", 0},
		"with a code":            {"0", "release=79", 79},
		"after a failed command": {"3", "release=79", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			go func() {
				eventually(t, "not acquired", func() bool { return len(w.gate.requests("job")) > 1 })
				w.gate.refuse("UpdateItem", "AccessDeniedException")
			}()
			r := w.cli("run", "job", "--exit-code", c.code, "--", "sh", "-c", "sleep 0.5; exit "+c.exit)
			require.Equal(t, c.want, r.code, r.err)
			require.Contains(t, r.err, "the lock could not be given back")
			require.Contains(t, r.err, "stays until its lease ends")
		})
	}
}
