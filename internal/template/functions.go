package template

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/lambdalease"
)

// deadRun is how long a dead run keeps others waiting at most, by the store's guarantees.
var deadRun = map[string]func(ttl time.Duration) time.Duration{
	"dynamodb": func(ttl time.Duration) time.Duration { return 2*ttl + 3*time.Second },
	"azblob":   func(ttl time.Duration) time.Duration { return ttl + time.Minute },
	"consul":   func(ttl time.Duration) time.Duration { return 3 * ttl },
}

// What Lambda does with an asynchronous invocation that failed: it waits for a minute, then for two.
const retryPauses = 3 * time.Minute

// lambdaReserve is lambdalease.Options.Reserve, which the functions leave at its default.
const lambdaReserve = time.Second

var codeURI = regexp.MustCompile(`^dist/[a-z]+\.zip$`)

// Environment is the environment of a function, as far as the template sets it.
func (s *Stack) Environment(function string) map[string]string {
	env := map[string]string{}
	variables, _ := at(s.Resources[function].Properties, "Environment", "Variables").(map[string]any)
	for name, v := range variables {
		env[name] = fmt.Sprint(v)
	}
	return env
}

func (s *Stack) checkFunction(r Resource, f *findings) {
	p := r.Properties
	f.want(text(p, "Runtime") == "provided.al2023" && fmt.Sprint(p["Architectures"]) == "[arm64]" && text(p, "Handler") == "bootstrap",
		"it is not what make build makes: bootstrap for provided.al2023 on arm64")
	f.want(codeURI.MatchString(text(p, "CodeUri")), "its code %q is no archive of make build", text(p, "CodeUri"))
	f.want(strings.HasPrefix(text(p, "FunctionName"), Own["AWS::StackName"]+"-"), "its name does not begin with the stack's")
	role := roleOf(p["Role"])
	_, known := s.Resources[role]
	f.want(known, "it has no role of the stack")
	logs := text(p, "LoggingConfig", "LogGroup")
	f.want(text(s.Resources[logs].Properties, "LogGroupName") == "/aws/lambda/"+text(p, "FunctionName"), "its log group is not its own")
	for _, action := range []string{"logs:CreateLogStream", "logs:PutLogEvents"} {
		f.want(s.may(role, action, logs+".Arn"), "its role may not %s in its log group", action)
	}
	queue := text(p, "EventInvokeConfig", "DestinationConfig", "OnFailure", "Destination")
	f.want(s.isQueue(queue) && text(p, "EventInvokeConfig", "DestinationConfig", "OnFailure", "Type") == "SQS",
		"what fails to the end does not go to the dead letters")
	f.want(s.may(role, "sqs:SendMessage", queue), "its role may not send to the dead letters")
	for name, v := range s.Environment(r.Name) {
		f.want(!secret.MatchString(name) || inSecretsManager.MatchString(v), "%s is no reference to a secret", name)
		f.want(secret.MatchString(name) || !strings.Contains(v, "{{resolve:"), "%s is a reference to a secret", name)
		f.want(v != "" || name == "CONSUL_DATACENTER", "%s is empty", name)
	}
	s.checkTimes(r, f)
}

func (s *Stack) isQueue(arn string) bool {
	name, ok := strings.CutSuffix(arn, ".Arn")
	return ok && s.Resources[name].Type == "AWS::SQS::Queue"
}

// checkTimes wants the time-out, the lease and the retries to fit each other.
func (s *Stack) checkTimes(r Resource, f *findings) {
	timeout := seconds(r.Properties["Timeout"])
	env := s.Environment(r.Name)
	ttl, err := time.ParseDuration(env["LEASE_TTL"])
	f.want(err == nil && ttl > 0, "it has no LEASE_TTL")
	f.want(timeout > 0 && timeout <= 15*time.Minute, "its time-out is %v", timeout)
	age := seconds(at(r.Properties, "EventInvokeConfig", "MaximumEventAgeInSeconds"))
	retries, _ := at(r.Properties, "EventInvokeConfig", "MaximumRetryAttempts").(int)
	f.want(age >= time.Minute && age <= 6*time.Hour, "its events may be %v old", age)
	if reserve, err := time.ParseDuration(env["SHARD_RESERVE"]); err == nil {
		f.want(timeout >= 4*ttl+reserve, "its time-out of %v leaves no time to take over the shards of a dead worker (TTL %v)", timeout, ttl)
		f.want(reserve >= 3*time.Second && reserve <= timeout/4, "its reserve of %v does not fit its time-out of %v", reserve, timeout)
		return
	}
	wait := (timeout - lambdaReserve) / 2
	need := deadRun[s.Parameters["Store"]](ttl)
	f.want(wait >= need, "a delivery waits for %v, half of the time-out of %v, and a dead run's lease (TTL %v) may last %v", wait, timeout, ttl, need)
	f.want(retries > 0, "a failed run is not tried again")
	f.want(age >= time.Duration(retries+1)*timeout+retryPauses, "its events are dropped after %v, before their %d retries", age, retries)
}

func seconds(v any) time.Duration {
	n, err := strconv.Atoi(fmt.Sprint(v))
	if err != nil {
		return -1
	}
	return time.Duration(n) * time.Second
}

func (s *Stack) checkSchedule(r Resource, f *findings) {
	p := r.Properties
	if err := CheckSchedule(text(p, "ScheduleExpression")); err != nil {
		f.add("%v", err)
	}
	zone := text(p, "ScheduleExpressionTimezone")
	_, err := time.LoadLocation(zone)
	f.want(zone != "" && err == nil, "its time zone is %q", zone)
	f.want(text(p, "FlexibleTimeWindow", "Mode") == "OFF", "it may start late")
	input := strings.ReplaceAll(text(p, "Target", "Input"), "<aws.scheduler.scheduled-time>", "2026-03-02T06:00:00Z")
	occurrence, err := lambdalease.Occurrence([]byte(input))
	f.want(err == nil && occurrence.Equal(time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)), "its input does not name the occurrence: %v", err)
	f.want(input != text(p, "Target", "Input"), "its input names one occurrence for ever")

	role, target := roleOf(at(p, "Target", "RoleArn")), text(p, "Target", "Arn")
	f.want(s.isFunction(target), "its target %s is no function of the stack", target)
	f.want(s.may(role, "lambda:InvokeFunction", target), "its role may not invoke %s", target)
	queue := text(p, "Target", "DeadLetterConfig", "Arn")
	f.want(s.isQueue(queue), "what it cannot deliver does not go to the dead letters")
	f.want(s.may(role, "sqs:SendMessage", queue), "its role may not send to the dead letters")
	age := seconds(at(p, "Target", "RetryPolicy", "MaximumEventAgeInSeconds"))
	retries, set := at(p, "Target", "RetryPolicy", "MaximumRetryAttempts").(int)
	f.want(set && retries >= 0 && retries <= 185 && age >= time.Minute && age <= 24*time.Hour, "its retry policy is not bounded: %d tries in %v", retries, age)
}

func (s *Stack) isFunction(arn string) bool {
	for _, r := range s.Resources {
		if r.Type == "AWS::Serverless::Function" &&
			arn == fmt.Sprintf("arn:aws:lambda:%s:%s:function:%s", Own["AWS::Region"], Own["AWS::AccountId"], text(r.Properties, "FunctionName")) {
			return true
		}
	}
	return false
}
