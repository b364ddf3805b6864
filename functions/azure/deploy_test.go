package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// template is deploy/azure/main.bicep. No Bicep compiler is needed to read what these tests are about.
func template(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", "azure", "main.bicep"))
	require.NoError(t, err)
	return string(b)
}

// block is the text of a resource, by its symbol.
func block(t *testing.T, symbol string) string {
	t.Helper()
	found := regexp.MustCompile(`(?ms)^resource ` + symbol + ` '.*?^\}$`).FindString(template(t))
	require.NotEmpty(t, found, "no resource %s", symbol)
	return found
}

// deployed are the settings of the app, each with its expression.
func deployed(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^    (\w+): (.+)$`).FindAllStringSubmatch(block(t, "settings"), -1) {
		require.NotContains(t, all, line[1])
		all[line[1]] = line[2]
	}
	return all
}

// value is what an expression comes to, as far as this app uses them.
func value(t *testing.T, expression string) string {
	t.Helper()
	if text, ok := strings.CutPrefix(expression, "'"); ok {
		text = strings.TrimSuffix(text, "'")
		text = strings.ReplaceAll(text, "${data.name}", "settledata0123456789")
		return strings.ReplaceAll(text, "${environment().suffixes.storage}", "core.windows.net")
	}
	if symbol, ok := strings.CutSuffix(expression, ".name"); ok {
		name := regexp.MustCompile(`(?m)^  name: '([a-z]+)'$`).FindStringSubmatch(block(t, symbol))
		require.NotNil(t, name, expression)
		return name[1]
	}
	preset := regexp.MustCompile(`(?m)^param ` + expression + ` string = '(.*)'$`).FindStringSubmatch(template(t))
	require.NotNil(t, preset, expression)
	return preset[1]
}

// hosts are settings that the Functions host reads, and this program does not.
var hosts = []string{
	"APPLICATIONINSIGHTS_AUTHENTICATION_STRING", "APPLICATIONINSIGHTS_CONNECTION_STRING", "AzureWebJobsStorage__accountName",
}

// unset are what this program reads and the template leaves out, with the reason.
var unset = map[string]string{
	"AZURE_STORAGE_CONNECTION_STRING": "it is a secret; the app has an identity",
	timeoutSetting:                    "host.json has it",
	"FUNCTIONS_APP_ROOT_PATH":         "the host sets it",
	"SETTLEMENT_FENCE":                "for demonstrations",
	"SETTLEMENT_PACE":                 "for demonstrations",
	"TZ":                              "the schedule is in UTC",
	"WEBSITE_TIME_ZONE":               "the schedule is in UTC",
}

// TestDeployment: the template sets what this program reads and nothing else, to values that it starts with.
func TestDeployment(t *testing.T) {
	env := map[string]string{}
	for name, expression := range deployed(t) {
		if !slices.Contains(hosts, name) {
			env[name] = value(t, expression)
		}
	}
	read := map[string]bool{}
	h, err := newHandler(func(name string) string {
		read[name] = true
		return env[name]
	})
	require.NoError(t, err)
	require.Equal(t, function, h.job.Name(), "the alerts look for the function by this name")

	want := slices.Concat(slices.Collect(maps.Keys(unset)), slices.Collect(maps.Keys(env)))
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(read)), "set, or left out for a reason: all that is read")
	for _, name := range hosts {
		require.Contains(t, deployed(t), name)
		require.NotContains(t, read, name)
	}
}

// TestDeploymentRights: the roles are those of docs/azure.md, which the store's own tests compare with what is asked for.
func TestDeploymentRights(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "azure.md"))
	require.NoError(t, err)
	documented := func(role string) []string {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(role) + ` \| (.*) \|$`).FindSubmatch(doc)
		require.NotNil(t, row, role)
		return strings.Split(strings.ReplaceAll(string(row[1]), "`", ""), ", ")
	}
	granted := func(symbol string) (actions []string) {
		role := block(t, symbol)
		for _, action := range regexp.MustCompile(`'Microsoft\.Storage/storageAccounts/blobServices/containers/(.+)'`).FindAllStringSubmatch(role, -1) {
			actions = append(actions, action[1])
		}
		require.Contains(t, role, "actions: []")
		require.NotContains(t, role, "*")
		return actions
	}
	require.Equal(t, documented("Locker"), granted("holder"))
	require.Equal(t, documented("Guard writer"), granted("holder"))
	require.Equal(t, []string{"blobs/read"}, granted("reader"))

	for assignment, want := range map[string][2]string{
		"mayLock": {"locks", "holder.id"}, "mayWrite": {"results", "holder.id"}, "mayRead": {"payments", "reader.id"},
	} {
		text := block(t, assignment)
		require.Contains(t, text, "\n  scope: "+want[0]+"\n")
		require.Contains(t, text, "\n    roleDefinitionId: "+want[1]+"\n")
	}
	require.Len(t, regexp.MustCompile(`(?m)^resource \w+ 'Microsoft\.Authorization/roleAssignments@`).FindAllString(template(t), -1), 5,
		"these three, the host's own storage, and telemetry")
}

// TestDeploymentAccounts: no keys, no public blobs, TLS 1.2, on both accounts.
func TestDeploymentAccounts(t *testing.T) {
	for _, account := range []string{"data", "host"} {
		text := block(t, account)
		for _, property := range []string{
			"minimumTlsVersion: 'TLS1_2'", "supportsHttpsTrafficOnly: true", "allowBlobPublicAccess: false", "allowSharedKeyAccess: false",
		} {
			require.Contains(t, text, "\n    "+property+"\n", account)
		}
	}
	for _, container := range []string{"locks", "payments", "results", "package"} {
		require.Contains(t, block(t, container), "publicAccess: 'None'")
	}
}
