package secret_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/e2e/torture/secret"
)

const (
	session  = "2a9c0a5e-13fd-4c7b-9a54-0d7f2c4d3e11"
	another  = "2a9c0a5e-13fd-4c7b-9a54-0d7f2c4d3e12"
	password = "correct horse battery"
)

// file writes text to a file of that name and gives its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestPlantedLeaks(t *testing.T) {
	var b secret.Book
	b.Add("session", session)
	b.Add("session", session)
	b.Add("password", password)
	require.Equal(t, map[string]int{"session": 1, "password": 1}, b.Counts())
	require.Equal(t, "password 1, session 1", b.String())
	expected := []string{"session", "password"}

	clean := file(t, "w1.log", "of another session: "+another+"\n"+session[:len(session)-1])
	wrong, err := b.Check(expected, []string{clean}, map[string]string{"the report": "ok"})
	require.NoError(t, err)
	require.Empty(t, wrong)

	leaking := file(t, "w2.log", `time=1 msg="renew /v1/session/renew/`+session+`: refused"`)
	wrong, err = b.Check(expected, []string{clean, leaking}, map[string]string{"the report": session + password})
	require.NoError(t, err)
	require.Equal(t, []string{
		"a secret was logged: session in w2.log", "a secret was logged: password in the report", "a secret was logged: session in the report",
	}, wrong)
	for _, line := range wrong {
		require.Empty(t, b.In(line), "the finding repeats the secret")
	}
}

// A search that cannot find anything is a finding itself.
func TestNothingToLookFor(t *testing.T) {
	var b secret.Book
	b.Add("nonce", "too short")
	b.Add("session", session)
	wrong, err := b.Check([]string{"nonce", "session"}, nil, map[string]string{"a log": "too short"})
	require.NoError(t, err)
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "no nonce was seen")

	_, err = b.Check(nil, nil, nil)
	require.ErrorContains(t, err, "nothing to look for secrets in")
	_, err = b.Check(nil, []string{filepath.Join(t.TempDir(), "missing")}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)

	(*secret.Book)(nil).Add("session", session) // of a proxy whose log nobody checks
}

func TestShortTexts(t *testing.T) {
	var b secret.Book
	require.Empty(t, b.In(session))
	b.Add("session", session)
	for _, text := range []string{"", "a", session[:11], session[:12]} {
		require.Empty(t, b.In(text))
	}
	require.Equal(t, []string{"session"}, b.In(session))
}
