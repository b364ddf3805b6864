package template_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/template"
)

// fault is a mistake in the template: the first old becomes new.
type fault struct{ name, old, new, says string }

// ours are those that Check finds.
var ours = []fault{
	{"billing mode", "BillingMode: PAY_PER_REQUEST", "BillingMode: PAY_PER_REQUST", "not on demand"},
	{"provisioned", "BillingMode: PAY_PER_REQUEST", "BillingMode: PROVISIONED", "not on demand"},
	{"no recovery", "PointInTimeRecoveryEnabled: true", "PointInTimeRecoveryEnabled: false", "no point-in-time recovery"},
	{"no protection", "DeletionProtectionEnabled: true", "DeletionProtectionEnabled: false", "not protected"},
	{"table goes with the stack", "UpdateReplacePolicy: Retain", "UpdateReplacePolicy: Delete", "does not outlive"},
	{
		"item expiry on locks", "DeletionProtectionEnabled: true",
		"DeletionProtectionEnabled: true\n      TimeToLiveSpecification: {AttributeName: until, Enabled: true}", "LockTable: item expiry",
	},
	{"another key", "AttributeName: name, KeyType", "AttributeName: lock, KeyType", `its key is "lock HASH"`},
	{"action misspelled", `"dynamodb:UpdateItem"]`, `"dynamodb:UpdateItems"]`, "dynamodb:UpdateItems"},
	{"action of another service", `"dynamodb:Query"`, `"dynamo:Query"`, "dynamo:Query"},
	{"any action", `["dynamodb:Query"]`, `["dynamodb:*"]`, "dynamodb:*"},
	{"any resource", "Resource: !GetAtt PaymentsTable.Arn", `Resource: "*"`, "not confined"},
	{"a policy of AWS's", "      Policies:\n", "      ManagedPolicyArns: [\"arn:aws:iam::aws:policy/AmazonDynamoDBFullAccess\"]\n      Policies:\n", "FullAccess"},
	{"the schedule of others", `            Condition: {StringEquals: {"aws:SourceAccount": !Ref AWS::AccountId}}` + "\n", "", "other accounts"},
	{"cron of five fields", "cron(5 0 * * ? *)", "cron(5 0 * * ?)", "six fields"},
	{"both days", "cron(5 0 * * ? *)", "cron(5 0 * * * *)", "question mark"},
	{"an hour too far", "cron(5 0 * * ? *)", "cron(5 24 * * ? *)", "hours"},
	{"rate of one minutes", "rate(1 minute)", "rate(1 minutes)", "one minute, two minutes"},
	{"no time zone", "      ScheduleExpressionTimezone: !Ref TimeZone\n", "", "time zone"},
	{"time zone that is none", "Default: UTC", "Default: Europe/Berln", "time zone"},
	{"no occurrence", `'{"scheduled-time":"<aws.scheduler.scheduled-time>"}'`, `'{"at":"<aws.scheduler.scheduled-time>"}'`, "does not name the occurrence"},
	{"one occurrence for ever", "<aws.scheduler.scheduled-time>", "2026-03-02T06:00:00Z", "for ever"},
	{"no retry policy", "        RetryPolicy: {MaximumRetryAttempts: 10, MaximumEventAgeInSeconds: 3600}\n", "", "retry policy"},
	{"no dead letters of the schedule", "        DeadLetterConfig: {Arn: !GetAtt DeadLetters.Arn}\n", "", "dead letters"},
	{"dead letters that may not be sent", `["sqs:SendMessage"]`, `["sqs:ReceiveMessage"]`, "may not send to the dead letters"},
	{"dead letters for four days", "MessageRetentionPeriod: 1209600", "MessageRetentionPeriod: 345600", "14 days"},
	{"time-out below the lease", "    Default: 240\n", "    Default: 60\n", "a dead run's lease"},
	{"lease beyond the time-out", "Default: 30s", "Default: 60s", "a dead run's lease"},
	{"events dropped before their retries", "MaximumEventAgeInSeconds: 3600\n        DestinationConfig", "MaximumEventAgeInSeconds: 300\n        DestinationConfig", "before their 2 retries"},
	{"shards without a reserve", "SHARD_RESERVE: 6s", "SHARD_RESERVE: 290s", "reserve"},
	{"architecture", "Architectures: [arm64]", "Architectures: [x86_64]", "make build"},
	{"another archive", "dist/dynamolock.zip", "functions/dynamolock", "no archive of make build"},
	{"the log of another", "LogGroup: !Ref SettlementLogs", "LogGroup: !Ref ShardLogs", "log group"},
	{"logs for ever", "      RetentionInDays: !Ref LogRetentionDays\n", "", "for ever"},
	{"a secret in the template", `!Sub "{{resolve:secretsmanager:${ConsulTokenSecret}}}"`, "b1gs37-0000", "CONSUL_HTTP_TOKEN is no reference"},
	{"a secret as a parameter", `!Sub "{{resolve:secretsmanager:${ConsulTokenSecret}}}"`, "!Ref ConsulTokenSecret", "CONSUL_HTTP_TOKEN is no reference"},
	{"a secret in the parameter store", "resolve:secretsmanager:${Consul", "resolve:ssm-secure:${Consul", "CONSUL_HTTP_TOKEN is no reference"},
	{"a literal key", "LEASE_PREFIX: cloudlease/", "LEASE_PREFIX: AKIAIOSFODNN7EXAMPLE", "looks like a secret"},
	{"an unused parameter", "          SHARD_MAX: !Ref ShardMax\n", "", "ShardMax: the parameter is not used"},
	{"a metric nobody makes", "MetricName: LostLeases, MetricValue", "MetricName: LostLease, MetricValue", "nothing makes the metric LostLeases"},
	{"a pattern without quotes", `$.outcome = "lost" }`, `$.outcome = lost }`, "something unknown"},
	{"an alarm over eight days", "MaxValue: 7\n    Default: 2", "MaxValue: 9\n    Default: 8", "no alarm on 8 times"},
	{"silence is success", "TreatMissingData: breaching", "TreatMissingData: notBreaching", "does not start at all"},
	{"no tag", "      Tags:\n        - {Key: application, Value: cloudlease}\n", "", "no tag"},
	{"a default that is refused", "Default: at-least-once", "Default: exactly-once", "LeasePolicy"},
}

// theirs are those that cfn-lint finds, by the named rule, and Check does not look for.
var theirs = []fault{
	{"a property that is none", "MessageRetentionPeriod: 1209600", "MessageRetentionPeriod: 1209600\n      VisibilityTimout: 30", "E3002"},
	{"a number that is none", "MemorySize: 256", "MemorySize: much", "E3012"},
	{"a reference to nothing", "Value: !Ref DeadLetters", "Value: !Ref DeadLetter", "E6101"},
	{"an attribute that is none", "Arn: !GetAtt DeadLetters.Arn", "Arn: !GetAtt DeadLetters.Arm", "E1010"},
	{"a retention that is none", "180, 365]\n    Default: 30", "180, 366]\n    Default: 366", "W1030"},
	{"a condition that nobody uses", "  IsScheduled: ", "  IsNotScheduled: !Equals [!Ref ScheduleState, DISABLED]\n  IsScheduled: ", "W8001"},
	{"a resource that may not be there", "    Condition: WithTables\n    DeletionPolicy", "    Condition: OnConsul\n    DeletionPolicy", "W1001"},
	{"a statistic that is none", "Statistic: Sum", "Statistic: Total", "E3030"},
}

// with is the template with the fault in it.
func (f fault) with(t *testing.T, text string) string {
	t.Helper()
	require.True(t, strings.Contains(text, f.old), "%s: the template has no %q", f.name, f.old) // Contains would print it all
	return strings.Replace(text, f.old, f.new, 1)
}

func TestFaultsAreFound(t *testing.T) {
	for _, f := range ours {
		t.Run(f.name, func(t *testing.T) {
			tmpl, err := template.Parse(f.with(t, load(t).Text))
			require.NoError(t, err)
			require.Contains(t, strings.Join(tmpl.Check(), "\n"), f.says)
		})
	}
}

// TestFaultsAreLeftToTheLinter: what Check does not look for is found by cfn-lint, which make lint names in an environment variable.
// It is slow to start, and gets one file with all of them.
func TestFaultsAreLeftToTheLinter(t *testing.T) {
	original := load(t).Text
	all := original
	var want []string
	for _, f := range theirs {
		tmpl, err := template.Parse(f.with(t, original))
		require.NoError(t, err)
		if f.says != "E1010" { // which is found here too, where it is a dead letter's
			require.Empty(t, tmpl.Check(), f.name)
		}
		all = f.with(t, all)
		want = append(want, f.says)
	}
	if linter := os.Getenv("CLOUDLEASE_CFN_LINT"); linter != "" {
		found := lint(t, linter, all)
		for _, rule := range want {
			require.Contains(t, found, rule)
		}
		untranslated := fault{"a destination that is none", "OnFailure: {Type: SQS,", "OnFailure: {Type: Queue,", "must be one of"}
		require.Contains(t, translate(t, filepath.Join(filepath.Dir(linter), "python"), untranslated.with(t, original)), untranslated.says)
	}
}

// lint gives the rules that a template breaks.
func lint(t *testing.T, linter, text string) (rules []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "template.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	out, err := exec.CommandContext(t.Context(), linter, "--format", "json", "--regions", "eu-west-1", "--template", path).Output()
	require.Error(t, err, "it finds something")
	var found []struct {
		Rule struct {
			ID string `json:"Id"`
		}
	}
	require.NoError(t, json.Unmarshal(out, &found), string(out))
	for _, x := range found {
		rules = append(rules, x.Rule.ID)
	}
	return rules
}

// translate gives what the SAM translator says of a template that it refuses.
func translate(t *testing.T, python, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "template.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	out, err := exec.CommandContext(t.Context(), python, "translate.py", path).CombinedOutput()
	require.Error(t, err, "it refuses it")
	return string(out)
}
