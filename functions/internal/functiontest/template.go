package functiontest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/template"
)

// Deployed is the deployment template with parameters, as the tests of a function see it.
func Deployed(t *testing.T, parameters map[string]string) *template.Stack {
	t.Helper()
	tmpl, err := template.Load("../../template.yaml")
	require.NoError(t, err)
	s, err := tmpl.Deploy(parameters)
	require.NoError(t, err)
	return s
}

// lambda is what AWS Lambda itself puts into an environment.
var lambda = Environment{
	"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_SESSION_TOKEN": "session",
}

// Variables are those of a function that the template does not set.
type Variables struct {
	Left []string // that the function reads and the template leaves at their defaults: for demonstrations and emulators
	SDK  []string // that an SDK reads behind the function's back
}

// Template checks that the function starts with the environment that the template gives it, that it reads all of that, and that
// there is nothing more to set.
func Template(t *testing.T, s *template.Stack, function string, v Variables, start func(getenv func(string) string) error) {
	t.Helper()
	env := Environment(s.Environment(function))
	require.NotEmpty(t, env)
	read := map[string]bool{}
	getenv := env.With(lambda)
	require.NoError(t, start(func(name string) string {
		read[name] = true
		return getenv(name)
	}))
	for name := range env {
		require.True(t, read[name] || slices.Contains(v.SDK, name), "the template sets %s and the function does not read it", name)
	}
	for name := range read {
		_, set := env[name]
		_, given := lambda[name]
		require.True(t, set || given || slices.Contains(v.Left, name), "the function reads %s and the template does not set it", name)
	}
	for _, name := range v.Left {
		_, set := env[name]
		require.True(t, read[name] && !set, "%s is not read, or the template sets it", name)
	}
	for _, name := range v.SDK {
		_, set := env[name]
		require.True(t, set && !read[name], "%s is read, or the template does not set it", name)
	}
}

// OnTables are a role's permissions on tables, each as an action and a table: "dynamodb:GetItem locks". tables names them by the
// template's resources.
func OnTables(s *template.Stack, role string, tables map[string]string) (all []string) {
	for _, p := range s.Permissions(role) {
		if action, resource, _ := strings.Cut(p, " "); tables[resource] != "" {
			all = append(all, action+" "+tables[resource])
		}
	}
	slices.Sort(all)
	return all
}
