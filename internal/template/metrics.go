package template

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Filter makes a metric out of the lines of a log group that match its pattern.
type Filter struct {
	Namespace, Metric string
	Pattern           Pattern
}

// Filters are those on the log group of a function.
func (s *Stack) Filters(function string) ([]Filter, error) {
	logs := text(s.Resources[function].Properties, "LoggingConfig", "LogGroup")
	var all []Filter
	for _, name := range keys(s.Resources) {
		r := s.Resources[name]
		if r.Type != "AWS::Logs::MetricFilter" || text(r.Properties, "LogGroupName") != logs {
			continue
		}
		pattern, err := ParsePattern(text(r.Properties, "FilterPattern"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, m := range list(r.Properties, "MetricTransformations") {
			all = append(all, Filter{text(m, "MetricNamespace"), text(m, "MetricName"), pattern})
		}
	}
	return all, nil
}

func (s *Stack) checkFilter(r Resource, f *findings) {
	_, err := ParsePattern(text(r.Properties, "FilterPattern"))
	f.want(err == nil, "%v", err)
	f.want(s.Resources[text(r.Properties, "LogGroupName")].Type == "AWS::Logs::LogGroup", "it reads no log group of the stack")
	for _, m := range list(r.Properties, "MetricTransformations") {
		f.want(text(m, "MetricValue") == "1" && at(m, "DefaultValue") == 0, "it does not count")
		metric := text(m, "MetricName")
		shown := false
		for _, other := range s.Resources {
			shown = shown || strings.Contains(text(other.Properties, "DashboardBody"), `"`+metric+`"`) || text(other.Properties, "MetricName") == metric
		}
		f.want(shown, "nobody looks at the metric %s", metric)
	}
}

// isMetric tells whether something in the stack makes the metric.
func (s *Stack) isMetric(namespace, metric string, dimensions []any) bool {
	value := ""
	if len(dimensions) == 1 {
		value = text(dimensions[0], "Name") + "=" + text(dimensions[0], "Value")
	}
	for _, r := range s.Resources {
		switch {
		case r.Type == "AWS::Logs::MetricFilter" && value == "":
			for _, m := range list(r.Properties, "MetricTransformations") {
				if text(m, "MetricNamespace") == namespace && text(m, "MetricName") == metric {
					return true
				}
			}
		case r.Type == "AWS::Serverless::Function" && namespace == "AWS/Lambda":
			if value == "FunctionName="+text(r.Properties, "FunctionName") && slices.Contains([]string{"Errors", "Throttles", "Invocations"}, metric) {
				return true
			}
		case r.Type == "AWS::SQS::Queue" && namespace == "AWS/SQS":
			if value == "QueueName="+r.Name+".QueueName" && metric == "ApproximateNumberOfMessagesVisible" {
				return true
			}
		}
	}
	return false
}

func (s *Stack) checkAlarm(r Resource, f *findings) {
	p := r.Properties
	f.want(s.isMetric(text(p, "Namespace"), text(p, "MetricName"), list(p, "Dimensions")), "nothing makes the metric %s of %s",
		text(p, "MetricName"), text(p, "Namespace"))
	f.want(text(p, "AlarmDescription") != "", "it does not say what it means")
	f.want((s.Parameters["AlarmTopic"] != "") == (len(list(p, "AlarmActions")) == 1), "it does not go to the topic")
	period, evaluations := seconds(p["Period"]), int(seconds(p["EvaluationPeriods"])/time.Second)
	most := 24 * time.Hour
	if period >= time.Hour {
		most = 7 * 24 * time.Hour
	}
	f.want(period >= time.Minute && evaluations > 0 && time.Duration(evaluations)*period <= most, "CloudWatch takes no alarm on %d times %v", evaluations, period)
	f.want(at(p, "Threshold") == 1, "its threshold is not 1")
	switch text(p, "ComparisonOperator") {
	case "GreaterThanOrEqualToThreshold":
		f.want(text(p, "TreatMissingData") == "notBreaching", "no data would raise it")
	case "LessThanThreshold":
		f.want(text(p, "TreatMissingData") == "breaching", "a function that does not start at all would not raise it")
	default:
		f.add("it compares by %q", text(p, "ComparisonOperator"))
	}
}

func (s *Stack) checkDashboard(r Resource, f *findings) {
	f.want(json.Valid([]byte(text(r.Properties, "DashboardBody"))), "its body is no JSON")
}
