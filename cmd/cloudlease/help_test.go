//go:build linux

package main_test

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// commands are those that --help lists.
func (w *world) commands() []string {
	w.t.Helper()
	var names []string
	for l := range strings.Lines(w.ok("--help")) {
		if m := regexp.MustCompile(`^  ([a-z]+)  +[A-Z]`).FindStringSubmatch(l); m != nil {
			names = append(names, m[1])
		}
	}
	return names
}

// TestHelp: every command is found from --help alone, and says what it does with an example.
func TestHelp(t *testing.T) {
	t.Parallel()
	w := otherWorld(t, "")
	names := w.commands()
	for _, name := range []string{
		"run", "status", "list", "watch", "break", "history", "clear", "floor", "pause", "resume", "doctor", "init", "completion", "man",
	} {
		require.Contains(t, names, name)
		help := w.ok(name, "--help")
		require.Contains(t, help, "Usage:")
		if name == "completion" {
			continue // cobra's own
		}
		require.Contains(t, help, "Examples:\n  ", name)
		for s := bufio.NewScanner(strings.NewReader(help)); s.Scan(); {
			require.LessOrEqual(t, len(s.Text()), 110, s.Text())
		}
	}
	require.Contains(t, w.ok("run", "--help"), "SIGKILL")
	for _, code := range []string{"191", "192", "193", "194", "195", "126", "127"} {
		require.Contains(t, w.ok("help", "exit-codes"), code)
		require.Contains(t, w.ok("run", "--help"), code)
	}
	r := w.cli("lst")
	require.Equal(t, 194, r.code)
	require.Contains(t, r.err, "list")
	require.Empty(t, r.out)
}

// TestManualAndCompletion are made by the program itself.
func TestManualAndCompletion(t *testing.T) {
	t.Parallel()
	w := otherWorld(t, "")
	dir := t.TempDir()
	w.ok("man", dir)
	for _, name := range []string{"cloudlease", "cloudlease-run", "cloudlease-doctor", "cloudlease-pause"} {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		require.NoError(t, err)
		require.Contains(t, string(page), ".SH EXAMPLE")
	}
	require.Equal(t, 1, w.cli("man", filepath.Join(dir, "missing")).code)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, w.ok("completion", shell), "cloudlease")
	}
	require.Contains(t, w.ok("__complete", "run", "x", "--if-held", ""), "skip")
	require.Contains(t, w.ok("__complete", "do"), "doctor")
}

// TestStoreURLs: what cannot be read is said without a request, and a credential is never repeated.
func TestStoreURLs(t *testing.T) {
	t.Parallel()
	w := otherWorld(t, "")
	for store, says := range map[string]string{
		"":                                    "no store is given",
		"locks":                               "has no scheme",
		"redis://locks":                       "none of dynamodb, azblob and consul",
		"dynamodb://":                         "names no table",
		"dynamodb://a/b":                      "names no table",
		"dynamodb://locks":                    "no AWS region is known",
		"dynamodb://locks?region=a&region=b":  "given 2 times",
		"dynamodb://locks?regoin=a":           `no parameter "regoin"; there are region`,
		"dynamodb://locks?endpoint=localhost": "no URL such as http://",
		"dynamodb://locks?endpoint=http://u:hush@h":   "carries a user",
		"dynamodb://KEY:hush@locks?region=a":          "carries a user or a password",
		"azblob://acc":                                "names no container",
		"azblob://acc/a/b":                            "names no container",
		"azblob://acc/locks?tokens=x":                 "neither page nor metadata",
		"azblob://acc/locks?sv=1&sig=hush":            "set AZURE_STORAGE_SAS_TOKEN",
		"consul://":                                   "names no agent",
		"consul://h?token=hush":                       "set CONSUL_HTTP_TOKEN",
		"consul://h?min-ttl=2":                        "no duration",
		"consul://h?scheme=ftp":                       "neither http nor https",
		"dynamodb://locks?region=eu-west-1&key=%zzzz": "cannot be read",
		"dynamodb://lo cks:hush":                      "is not a URL",
		"mem://x":                                     "has no name",
	} {
		r := w.cli("list", "--store", store)
		require.Equal(t, 194, r.code, store)
		require.Contains(t, r.err, says, store)
		require.NotContains(t, r.err, "hush")
	}
	require.Contains(t, w.ok("list", "--store", "mem://"), "NAME")
	require.Equal(t, "[]\n", w.ok("list", "--store", "mem://", "-o", "json"))
}

// TestConfinedEnvironment: no credential of the store's is added to the command's environment.
func TestConfinedEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env = append(w.env, "CONSUL_HTTP_TOKEN=hush")
	plain := strings.Count(strings.Join(w.env, "\n"), "hush")
	require.Equal(t, plain, strings.Count(w.ok("run", "L", "--", "env"), "hush"))
	require.NotContains(t, w.ok("run", "L", "--store", w.url, "--", "sh", "-c", "echo $CLOUDLEASE_STORE"), "test")
}
