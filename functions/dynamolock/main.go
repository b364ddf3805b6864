// Command dynamolock is an AWS Lambda function that settles the payments of a day once per occurrence of its schedule,
// with its lock and its results in DynamoDB.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lambdalease"
	"github.com/cloudlease/cloudlease/lease"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	handler, err := newHandler(os.Getenv)
	if err != nil {
		slog.Error("the function cannot start", slog.String("err", err.Error()))
		os.Exit(1)
	}
	lambda.StartWithOptions(handler, lambda.WithEnableSIGTERM())
}

// newHandler puts the function together from its environment. It makes no request.
func newHandler(getenv func(string) string) (*lambdalease.Handler, error) {
	cfg, err := configure(getenv)
	if err != nil {
		return nil, err
	}
	api := cfg.client()
	store, err := dynamolock.New(api, cfg.leaseTable, nil)
	if err != nil {
		return nil, err
	}
	client, err := lease.New(store, &lease.Options{TTL: cfg.ttl})
	if err != nil {
		return nil, fmt.Errorf("the environment variable LEASE_TTL: %w", err)
	}
	var results fence.Guard
	if results, err = dynamolock.NewGuard(api, cfg.resultsTable, nil); err != nil {
		return nil, err
	}
	if !cfg.fenced {
		results = settlement.Unfenced(results)
	}
	job, err := settlement.New(&payments{api, cfg.paymentsTable}, results, &settlement.Options{Pace: cfg.pace, Logger: slog.Default()})
	if err != nil {
		return nil, err
	}
	return lambdalease.New(client, cfg.job, job.Handle, &lambdalease.Options{Singleton: cfg.singleton()})
}
