package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cloudlease/cloudlease/functions/internal/environ"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
)

// config is what the function's environment says. The SDK's config module would read it too, but makes the binary larger
// by a quarter and the cold start longer, for sources of credentials that a function does not have.
type config struct {
	settlement.Config
	leaseTable    string // LEASE_TABLE
	paymentsTable string // PAYMENTS_TABLE
	resultsTable  string // RESULTS_TABLE
	region        string // AWS_REGION
	endpoint      string // AWS_ENDPOINT_URL_DYNAMODB or AWS_ENDPOINT_URL
	getenv        func(string) string
}

// configure reads the environment and reports all that is wrong with it at once, by name.
func configure(getenv func(string) string) (config, error) {
	r := environ.New(getenv)
	c := config{
		Config:     settlement.Configure(r),
		leaseTable: r.Need("LEASE_TABLE"), paymentsTable: r.Need("PAYMENTS_TABLE"), resultsTable: r.Need("RESULTS_TABLE"),
		region: r.Need("AWS_REGION"), endpoint: r.Or("AWS_ENDPOINT_URL_DYNAMODB", r.Get("AWS_ENDPOINT_URL")),
		getenv: getenv,
	}
	if u, err := url.Parse(c.endpoint); c.endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		r.Fault(fmt.Errorf("the endpoint %.60q of AWS_ENDPOINT_URL_DYNAMODB or AWS_ENDPOINT_URL is no URL with a host", c.endpoint))
	}
	return c, r.Err()
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
