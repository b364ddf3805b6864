package template_test

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/template"
)

var read = sync.OnceValues(func() (*template.Template, error) { return template.Load("../../template.yaml") })

func load(t *testing.T) *template.Template {
	t.Helper()
	tmpl, err := read()
	require.NoError(t, err)
	return tmpl
}

func TestTemplate(t *testing.T) {
	require.Empty(t, load(t).Check())
}

// TestDocumented: what can be set, and what can go off, is in docs/deploy-aws.md, and nothing else that looks like it.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/deploy-aws.md")
	require.NoError(t, err)
	var declared []string
	for _, m := range regexp.MustCompile(`(?m)^  (\w+):\n    Type: (String|Number|CommaDelimitedList|AWS::CloudWatch::Alarm)\n`).
		FindAllStringSubmatch(load(t).Text, -1) {
		declared = append(declared, m[1])
	}
	for _, m := range regexp.MustCompile(`MetricName: (\w+), MetricValue`).FindAllStringSubmatch(load(t).Text, -1) {
		declared = append(declared, m[1])
	}
	require.Greater(t, len(declared), 40)
	for _, name := range declared {
		require.True(t, strings.Contains(string(doc), "`"+name+"`"), "%s is not documented", name)
	}
	for _, m := range regexp.MustCompile("`([A-Z]\\w+Alarm)`").FindAllStringSubmatch(string(doc), -1) {
		require.Contains(t, declared, m[1])
	}
}

// What CloudFormation would refuse is refused, and says which parameter or rule it is.
func TestRefusedParameters(t *testing.T) {
	for says, parameters := range map[string]map[string]string{
		"AzureServiceURL, AzureTenantId": {"Store": "azblob", "AzureServiceURL": "https://account.blob.core.windows.net"},
		"ConsulAddress":                  {"Store": "consul"},
		"Store is":                       {"Store": "etcd"},
		"LeaseTTL is":                    {"LeaseTTL": "1s"},
		"TimeoutSeconds is":              {"TimeoutSeconds": "901"},
		"AlarmTopic is":                  {"AlarmTopic": "arn:aws:sns:*"},
		"no parameter Shop":              {"Shop": "on"},
	} {
		_, err := load(t).Deploy(parameters)
		require.ErrorContains(t, err, says)
	}
}

func TestPattern(t *testing.T) {
	for pattern, lines := range map[string]map[string]bool{
		`{ $.a = "x" }`: {
			`{"a":"x"}`: true, `{"a":"xy"}`: false, `{"b":"x"}`: false, `{"a":1}`: false, `["x"]`: false, `a x`: false, `null`: false, ``: false,
		},
		`{ $.a != "x" }`:                         {`{"a":"y"}`: true, `{"a":"x"}`: false, `{"b":"y"}`: false},
		`{ $.a = "*b*" }`:                        {`{"a":"abc"}`: true, `{"a":"b"}`: true, `{"a":"ac"}`: false, `{"a":"x\nb\ny"}`: true},
		`{ $.a = "1.5" }`:                        {`{"a":"1.5"}`: true, `{"a":"1x5"}`: false},
		`{ $.a = "x" || $.b = "y" && $.c = "z"}`: {`{"a":"x"}`: true, `{"b":"y"}`: false, `{"b":"y","c":"z"}`: true},
		`{ ($.a = "x" || $.b = "y") && $.c = "z" }`: {
			`{"a":"x"}`: false, `{"a":"x","c":"z"}`: true, `{"b":"y","c":"z"}`: true, `{"c":"z"}`: false,
		},
	} {
		p, err := template.ParsePattern(pattern)
		require.NoError(t, err)
		for line, want := range lines {
			require.Equal(t, want, p.Match(line), "%s on %s", pattern, line)
		}
	}
	for _, bad := range []string{
		``, `ERROR`, `{}`, `{ $.a }`, `{ $.a = x }`, `{ $.a = "x" `, `{ ($.a = "x" }`, `{ $.a = "x") }`, `{ $.a = "x" && }`, `{ a = "x" }`, `{ $.a > "x" }`, `{ $.a = "x" $.b = "y" }`,
	} {
		_, err := template.ParsePattern(bad)
		require.Error(t, err, bad)
	}
}

func TestSchedules(t *testing.T) {
	good := []string{"cron(5 0 * * ? *)", "cron(0/15 8-17 ? * MON-FRI *)", "cron(0 12 L * ? 2026-2030)", "cron(0 9 ? JAN,JUL 2#1 *)", "rate(1 minute)", "rate(12 hours)"}
	bad := []string{
		"cron(60 0 * * ? *)", "cron(5 0 0 * ? *)", "cron(5 0 * 13 ? *)", "cron(5 0 ? * ? *)", "cron(5 0 * * ? 1969)", "cron(x 0 * * ? *)", "cron(30-5 0 * * ? *)",
		"cron(*/0 0 * * ? *)", "cron(5 0 ? * MOM *)", "cron(5 0 * * ? *", "5 0 * * ? *", "rate(0 minutes)", "rate(2 minute)", "rate(1 week)", "",
	}
	for _, schedule := range good {
		require.NoError(t, template.CheckSchedule(schedule))
	}
	for _, schedule := range bad {
		require.Error(t, template.CheckSchedule(schedule), schedule)
	}
}

func TestWhatIsNoTemplate(t *testing.T) {
	for says, text := range map[string]string{
		"no mapping":       "[]",
		"there twice":      "Resources: {A: 1, A: 2}",
		"no aliases":       "A: &a 1\nB: *a",
		"read the":         "a: [",
		"documents":        "",
		"no condition":     "Resources: {A: {Condition: Missing}}",
		"Fn::Transform is": "Resources: {A: {Properties: {B: !Transform x}}}",
		"no such resource": "Resources: {A: {Properties: {B: !GetAtt C.Arn}}}",
		"to refer to":      "Resources: {A: {Properties: {B: !Ref C}}}",
	} {
		tmpl, err := template.Parse(text)
		if err == nil {
			_, err = tmpl.Deploy(nil)
		}
		require.ErrorContains(t, err, says)
	}
}
