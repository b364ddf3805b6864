//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// job is the name of the lock.
const job = "settlement"

// line is what the function logs of a delivery, or of why it could not start.
type line struct {
	Level      string    `json:"level"`
	Msg        string    `json:"msg"`
	Outcome    string    `json:"outcome"`
	Occurrence time.Time `json:"occurrence"`
	Token      lease.Token
	Err        string `json:"err"`
}

// log reads all lines of the function's log group that are JSON.
func (s *stack) log(ctx context.Context) ([]line, error) {
	pages := cloudwatchlogs.NewFilterLogEventsPaginator(s.logs, &cloudwatchlogs.FilterLogEventsInput{
		LogGroupName: aws.String(s.outputs["SettlementLogGroup"]),
	})
	var lines []line
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
		for _, e := range page.Events {
			var l line
			if text := aws.ToString(e.Message); strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &l) == nil && l.Msg != "" {
				lines = append(lines, l)
			}
		}
	}
	return lines, nil
}

// deliveries are the lines of the deliveries of an occurrence, by outcome.
func (s *stack) deliveries(ctx context.Context, at time.Time) (map[string][]line, error) {
	lines, err := s.log(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string][]line{}
	for _, l := range lines {
		if l.Msg == "singleton delivery" && l.Occurrence.Equal(at) {
			found[l.Outcome] = append(found[l.Outcome], l)
		}
	}
	return found, nil
}

// lock is the job's lock, as its item says.
func (s *stack) lock(ctx context.Context) (lease.Info, error) {
	store, err := dynamolock.New(s.tables, s.outputs["LockTableName"], nil)
	if err != nil {
		return lease.Info{}, err
	}
	return store.Inspect(ctx, job)
}

// report is a result's value.
type report struct {
	Day        string      `json:"day"`
	Count      int         `json:"count"`
	TotalCents int64       `json:"total_cents"`
	Occurrence time.Time   `json:"occurrence"`
	Token      lease.Token `json:"token"`
}

// result is the result of a day, with the token that the fence keeps beside it, 0 if there is none.
func (s *stack) result(ctx context.Context, day string) (report, fence.Entry, error) {
	guard, err := dynamolock.NewGuard(s.tables, s.outputs["ResultsTableName"], nil)
	if err != nil {
		return report{}, fence.Entry{}, err
	}
	e, err := guard.Get(ctx, "settlement/"+day)
	if err != nil || e.Token == 0 {
		return report{}, e, err
	}
	var r report
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return r, e, fmt.Errorf("read the result of %s: %w", day, err)
	}
	return r, e, nil
}

// results counts the items of the table.
func (s *stack) results(ctx context.Context) (int, error) {
	out, err := s.tables.Scan(ctx, &dynamodb.ScanInput{TableName: aws.String(s.outputs["ResultsTableName"]), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return 0, fmt.Errorf("count the results: %w", err)
	}
	return int(out.Count), nil
}

// pay writes n payments of a day, 100 cents the first, 101 the second, and says what they come to.
func (s *stack) pay(ctx context.Context, day string, n int) (total int64, err error) {
	for i := range n {
		cents := int64(100 + i)
		_, err := s.tables.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(s.outputs["PaymentsTableName"]), Item: map[string]types.AttributeValue{
			"day": &types.AttributeValueMemberS{Value: day}, "id": &types.AttributeValueMemberS{Value: fmt.Sprintf("p%03d", i+1)},
			"cents":    &types.AttributeValueMemberN{Value: strconv.FormatInt(cents, 10)},
			"currency": &types.AttributeValueMemberS{Value: "EUR"},
		}})
		if err != nil {
			return 0, fmt.Errorf("write a payment: %w", err)
		}
		total += cents
	}
	return total, nil
}

// metric is the sum of a metric in the last hour, of one function if it is named.
func (s *stack) metric(ctx context.Context, namespace, name, function string) (float64, error) {
	now := time.Now()
	m := &cwtypes.Metric{Namespace: &namespace, MetricName: &name}
	if function != "" {
		m.Dimensions = []cwtypes.Dimension{{Name: aws.String("FunctionName"), Value: &function}}
	}
	out, err := s.metrics.GetMetricData(ctx, &cloudwatch.GetMetricDataInput{
		StartTime: aws.Time(now.Add(-time.Hour)), EndTime: aws.Time(now.Add(time.Minute)),
		MetricDataQueries: []cwtypes.MetricDataQuery{{Id: aws.String("m"), MetricStat: &cwtypes.MetricStat{
			Metric: m, Period: aws.Int32(60), Stat: aws.String("Sum"),
		}}},
	})
	if err != nil {
		return 0, fmt.Errorf("read the metric %s: %w", name, err)
	}
	sum := 0.0
	for _, r := range out.MetricDataResults {
		for _, v := range r.Values {
			sum += v
		}
	}
	return sum, nil
}

// rings wants an alarm of the stack in a state. Where the metric has counted nothing yet, an alarm that is quiet may have no data.
func (s *stack) rings(ctx context.Context, resource string, wanted cwtypes.StateValue) error {
	return until(ctx, fmt.Sprintf("the alarm %s is %s", resource, wanted), func(ctx context.Context) (bool, error) {
		out, err := s.metrics.DescribeAlarms(ctx, &cloudwatch.DescribeAlarmsInput{AlarmNamePrefix: aws.String(s.name + "-" + resource)})
		if err != nil {
			return false, fmt.Errorf("read the alarm %s: %w", resource, err)
		}
		if len(out.MetricAlarms) != 1 {
			return false, fmt.Errorf("there are %d alarms %s", len(out.MetricAlarms), resource)
		}
		have := out.MetricAlarms[0].StateValue
		return have == wanted || wanted == cwtypes.StateValueOk && have == cwtypes.StateValueInsufficientData, nil
	})
}

// deadLetters is how many messages the queue has.
func (s *stack) deadLetters(ctx context.Context) (int, error) {
	out, err := s.queues.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl:       aws.String(s.outputs["DeadLettersURL"]),
		AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameApproximateNumberOfMessages},
	})
	if err != nil {
		return 0, fmt.Errorf("count the dead letters: %w", err)
	}
	return strconv.Atoi(out.Attributes[string(sqstypes.QueueAttributeNameApproximateNumberOfMessages)])
}
