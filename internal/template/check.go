package template

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Variants are parameters that between them deploy everything that the template has.
var Variants = map[string]map[string]string{
	"dynamodb": {},
	"azblob, identity": {
		"Store": "azblob", "AzureServiceURL": "https://account.blob.core.windows.net", "AzureTenantId": "tenant", "AzureClientId": "client",
		"AzureTokenLayer": "arn:aws:lambda:eu-west-1:123456789012:layer:token:1",
	},
	"azblob, connection string": {"Store": "azblob", "AzureConnectionSecret": "cloudlease/azure"},
	"consul": {
		"Store": "consul", "ConsulAddress": "https://consul.internal:8501", "ConsulTokenSecret": "cloudlease/consul",
		"SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1",
	},
	"dynamodb and shard workers": {
		"ShardWorker": "on", "AlarmTopic": "arn:aws:sns:eu-west-1:123456789012:alarms", "TableKey": "arn:aws:kms:eu-west-1:123456789012:key/1",
	},
}

// findings gathers what is wrong.
type findings struct {
	at  string // where the next ones are
	all []string
}

func (f *findings) add(format string, args ...any) {
	f.all = append(f.all, f.at+": "+fmt.Sprintf(format, args...))
}

// want adds a finding unless ok.
func (f *findings) want(ok bool, format string, args ...any) {
	if !ok {
		f.add(format, args...)
	}
}

// Check finds what is wrong with the template, in all variants; each finding is named once.
func (t *Template) Check() []string {
	f := &findings{}
	t.checkParameters(f)
	t.checkSecrets(f)
	for _, variant := range keys(Variants) {
		s, err := t.Deploy(Variants[variant])
		if err != nil {
			f.at = "with " + variant
			f.add("%v", err)
			continue
		}
		s.check(f)
	}
	slices.Sort(f.all)
	return slices.Compact(f.all)
}

// checks are what is looked at, by the type of a resource.
var checks = map[string]func(*Stack, Resource, *findings){
	"AWS::DynamoDB::Table": (*Stack).checkTable, "AWS::Serverless::Function": (*Stack).checkFunction, "AWS::IAM::Role": (*Stack).checkRole,
	"AWS::Scheduler::Schedule": (*Stack).checkSchedule, "AWS::SQS::Queue": (*Stack).checkQueue, "AWS::Logs::LogGroup": (*Stack).checkLogs,
	"AWS::Logs::MetricFilter": (*Stack).checkFilter, "AWS::CloudWatch::Alarm": (*Stack).checkAlarm,
	"AWS::CloudWatch::Dashboard": (*Stack).checkDashboard,
}

func (s *Stack) check(f *findings) {
	for _, name := range keys(s.Resources) {
		r := s.Resources[name]
		f.at = name
		check, known := checks[r.Type]
		if !known {
			f.add("nothing is known of the type %s", r.Type)
			continue
		}
		check(s, r, f)
		if tags := fmt.Sprint(r.Properties["Tags"]); !slices.Contains([]string{
			"AWS::Scheduler::Schedule", "AWS::Logs::MetricFilter", "AWS::CloudWatch::Dashboard", // these take none
		}, r.Type) {
			f.want(strings.Contains(tags, "application") && strings.Contains(tags, "cloudlease"), "it has no tag application=cloudlease")
		}
	}
}

var reference = regexp.MustCompile(`(?:!Ref |\$\{)(\w+)`)

// checkParameters wants every parameter to be used, and its default to be one that it takes.
func (t *Template) checkParameters(f *findings) {
	_, body, _ := strings.Cut(t.Text, "\nRules:\n")
	used := map[string]bool{}
	for _, m := range reference.FindAllStringSubmatch(body, -1) {
		used[m[1]] = true
	}
	for _, name := range keys(t.section("Parameters")) {
		f.at = name
		f.want(used[name], "the parameter is not used")
		if def := t.section("Parameters")[name]; at(def, "Default") != nil {
			_, err := parameter(name, def, nil)
			f.want(err == nil, "%v", err)
		}
	}
}

// literals look like secrets. None has a place in a template.
var literals = []*regexp.Regexp{
	regexp.MustCompile(`A[KS]IA[0-9A-Z]{16}`), regexp.MustCompile(`(?i)(AccountKey|SharedAccessSignature|password)=`), regexp.MustCompile(`[?&]sig=`),
	regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), regexp.MustCompile(`-----BEGIN`), regexp.MustCompile(`[0-9A-Za-z+/]{60,}`),
}

// secret is the name of a variable that holds one.
var secret = regexp.MustCompile(`(TOKEN|SECRET|PASSWORD|KEY|CONNECTION_STRING)$`)

// inSecretsManager is a reference to a secret there. The Systems Manager's are not taken in a function's environment, or are no secrets.
var inSecretsManager = regexp.MustCompile(`^\{\{resolve:secretsmanager:[^{}]+\}\}$`)

func (t *Template) checkSecrets(f *findings) {
	f.at = "the template"
	for _, re := range literals {
		if place := re.FindStringIndex(t.Text); place != nil {
			f.add("line %d looks like a secret (%s)", 1+strings.Count(t.Text[:place[0]], "\n"), re)
		}
	}
	f.want(!strings.Contains(t.Text, "NoEcho"), "a parameter is a secret; pass the name of one instead")
}

func (s *Stack) checkTable(r Resource, f *findings) {
	f.want(text(r.Properties, "BillingMode") == "PAY_PER_REQUEST", "it is not on demand")
	f.want(at(r.Properties, "PointInTimeRecoverySpecification", "PointInTimeRecoveryEnabled") == true, "it has no point-in-time recovery")
	f.want(at(r.Properties, "DeletionProtectionEnabled") == true, "it is not protected against deletion")
	f.want(r.DeletionPolicy == "Retain" && r.UpdateReplacePolicy == "Retain", "it does not outlive the stack")
	f.want(at(r.Properties, "TimeToLiveSpecification") == nil, "item expiry would remove what must stay, such as a lock's token")
	f.want(at(r.Properties, "TableName") == nil, "it has a fixed name: after a removal of the stack it would be in the way")
	if key := s.Parameters["TableKey"]; key != "" {
		f.want(text(r.Properties, "SSESpecification", "KMSMasterKeyId") == key, "it does not use the key")
	}
	wanted := map[string]string{"LockTable": "name HASH", "ResultsTable": "key HASH", "PaymentsTable": "day HASH id RANGE"}[r.Name]
	var schema []string
	for _, k := range list(r.Properties, "KeySchema") {
		schema = append(schema, text(k, "AttributeName"), text(k, "KeyType"))
	}
	f.want(strings.Join(schema, " ") == wanted, "its key is %q, the functions want %q", strings.Join(schema, " "), wanted)
	for _, a := range list(r.Properties, "AttributeDefinitions") {
		f.want(text(a, "AttributeType") == "S", "its key has the attribute %s, which is no string", text(a, "AttributeName"))
	}
}

func (s *Stack) checkQueue(r Resource, f *findings) {
	f.want(at(r.Properties, "MessageRetentionPeriod") == 14*24*3600, "it does not keep its messages for 14 days")
	f.want(at(r.Properties, "SqsManagedSseEnabled") == true, "it is not encrypted")
}

func (s *Stack) checkLogs(r Resource, f *findings) {
	f.want(at(r.Properties, "RetentionInDays") != nil, "it keeps its lines for ever")
	f.want(strings.HasPrefix(text(r.Properties, "LogGroupName"), "/aws/lambda/"+Own["AWS::StackName"]+"-"), "its name is not the function's")
}
