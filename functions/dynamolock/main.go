// Command dynamolock is an AWS Lambda function that settles the payments of a day once per occurrence of its schedule,
// with its lock and its results in DynamoDB.
package main

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/functions/internal/start"
	"github.com/cloudlease/cloudlease/lambdalease"
)

func main() { start.Lambda(newHandler) }

// newHandler puts the function together from its environment. It makes no request.
func newHandler(getenv func(string) string) (*lambdalease.Handler, error) {
	cfg, err := configure(getenv)
	if err != nil {
		return nil, err
	}
	return open(cfg, cfg.DynamoDB())
}

func open(cfg config, api *dynamodb.Client) (*lambdalease.Handler, error) {
	store, err := dynamolock.New(api, cfg.leaseTable, nil)
	if err != nil {
		return nil, err
	}
	client, err := cfg.Client(store)
	if err != nil {
		return nil, err
	}
	results, err := dynamolock.NewGuard(api, cfg.resultsTable, nil)
	if err != nil {
		return nil, err
	}
	job, err := cfg.Settlement(&payments{api, cfg.paymentsTable}, results)
	if err != nil {
		return nil, err
	}
	return lambdalease.New(client, cfg.Job, job.Handle, &lambdalease.Options{Singleton: cfg.Singleton()})
}
