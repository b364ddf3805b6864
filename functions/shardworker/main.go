// Command shardworker is an AWS Lambda function that works on the shards of a stream: started every minute, in as many copies as
// there is work for, each leases a few shards, works until shortly before its deadline, stores checkpoints, and hands its
// shards back; the next invocation goes on from there. Its leases and results are in DynamoDB. The stream is a generated one:
// put the reader of yours in the place of stream.go.
package main

import (
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/functions/internal/start"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

func main() { start.Lambda(newHandler) }

// newHandler puts the function together from its environment. It makes no request.
func newHandler(getenv func(string) string) (*handler, error) {
	cfg, err := configure(getenv)
	if err != nil {
		return nil, err
	}
	return open(cfg, cfg.DynamoDB())
}

func open(cfg config, api *dynamodb.Client) (*handler, error) {
	store, err := dynamolock.New(api, cfg.leaseTable, nil)
	if err != nil {
		return nil, err
	}
	client, err := lease.New(store, &lease.Options{TTL: cfg.ttl, Holder: cfg.name})
	if err != nil {
		return nil, err
	}
	results, err := dynamolock.NewGuard(api, cfg.resultsTable, nil)
	if err != nil {
		return nil, err
	}
	s := stream{shards: cfg.shards, records: cfg.records, pace: cfg.pace}
	worker, err := shard.New(client, cfg.group, s, &shard.Options{
		MaxShards: cfg.most,
		// What is asked to stop at the deadline less the reserve has stopped and is handed back before the deadline.
		Grace: cfg.reserve / 3, StopLimit: cfg.reserve / 3,
	})
	if err != nil {
		return nil, err
	}
	return &handler{worker: worker, stream: s, results: results, reserve: cfg.reserve, log: slog.Default()}, nil
}
