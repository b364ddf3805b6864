package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cloudlease/cloudlease/functions/internal/environ"
)

// config is what the function's environment says.
type config struct {
	leaseTable   string        // LEASE_TABLE
	resultsTable string        // RESULTS_TABLE
	ttl          time.Duration // LEASE_TTL, the lease package's default unless told otherwise
	name         string        // LEASE_HOLDER, the host's name unless told otherwise
	group        string        // SHARD_GROUP
	most         int           // SHARD_MAX: how many shards one invocation works on; 10 unless told otherwise
	reserve      time.Duration // SHARD_RESERVE: what is kept of an invocation for handing back; 6s unless told otherwise
	shards       int           // STREAM_SHARDS, 8 unless told otherwise
	records      int           // STREAM_RECORDS of each shard, 100 unless told otherwise
	pace         time.Duration // STREAM_PACE of one record
	region       string        // AWS_REGION
	endpoint     string        // AWS_ENDPOINT_URL_DYNAMODB or AWS_ENDPOINT_URL
	getenv       func(string) string
}

// configure reads the environment and reports all that is wrong with it at once, by name.
func configure(getenv func(string) string) (config, error) {
	r := environ.New(getenv)
	c := config{
		leaseTable: r.Need("LEASE_TABLE"), resultsTable: r.Need("RESULTS_TABLE"), ttl: r.Duration("LEASE_TTL"), name: r.Get("LEASE_HOLDER"),
		group: r.Need("SHARD_GROUP"), most: number(r, "SHARD_MAX", 10), reserve: r.Duration("SHARD_RESERVE"),
		shards: number(r, "STREAM_SHARDS", 8), records: number(r, "STREAM_RECORDS", 100), pace: r.Duration("STREAM_PACE"),
		region: r.Need("AWS_REGION"), endpoint: r.Or("AWS_ENDPOINT_URL_DYNAMODB", r.Get("AWS_ENDPOINT_URL")), getenv: getenv,
	}
	if c.reserve == 0 {
		c.reserve = 6 * time.Second
	}
	if u, err := url.Parse(c.endpoint); c.endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		r.Fault(fmt.Errorf("the endpoint %.60q of AWS_ENDPOINT_URL_DYNAMODB or AWS_ENDPOINT_URL is no URL with a host", c.endpoint))
	}
	return c, r.Err()
}

// number is a setting that is a whole number above 0.
func number(r *environ.Reader, name string, otherwise int) int {
	n, err := strconv.Atoi(r.Or(name, strconv.Itoa(otherwise)))
	if err != nil || n < 1 {
		r.Wrong(name, "a whole number above 0")
	}
	return n
}

// client makes the function's one DynamoDB client.
func (c config) client() *dynamodb.Client {
	o := dynamodb.Options{Region: c.region, Credentials: aws.CredentialsProviderFunc(c.credentials)}
	if c.endpoint != "" {
		o.BaseEndpoint = aws.String(c.endpoint)
	}
	return dynamodb.New(o)
}

// credentials are those that Lambda puts into the environment of a function. They stay the same for its environment's life.
func (c config) credentials(context.Context) (aws.Credentials, error) {
	creds := aws.Credentials{
		AccessKeyID: c.getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: c.getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken: c.getenv("AWS_SESSION_TOKEN"), Source: "environment",
	}
	if !creds.HasKeys() {
		return creds, errors.New("the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are missing")
	}
	return creds, nil
}
