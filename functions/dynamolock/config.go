package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// config is what the function's environment says. The SDK's config module would read it too, but makes the binary larger
// by a quarter and the cold start longer, for sources of credentials that a function does not have.
type config struct {
	leaseTable    string        // LEASE_TABLE
	paymentsTable string        // PAYMENTS_TABLE
	resultsTable  string        // RESULTS_TABLE
	job           string        // LEASE_JOB, "settlement" unless told otherwise
	ttl           time.Duration // LEASE_TTL, the lease package's default unless told otherwise
	policy        string        // LEASE_POLICY, "at-least-once" unless told otherwise
	pace          time.Duration // SETTLEMENT_PACE, for demonstrations
	fenced        bool          // SETTLEMENT_FENCE, "on" unless told "off", which shows what happens then
	region        string        // AWS_REGION
	endpoint      string        // AWS_ENDPOINT_URL_DYNAMODB or AWS_ENDPOINT_URL
	getenv        func(string) string
}

// configure reads the environment and reports all that is wrong with it at once, by name.
func configure(getenv func(string) string) (config, error) {
	var errs []error
	need := func(name string) string {
		v := getenv(name)
		if v == "" {
			errs = append(errs, fmt.Errorf("the environment variable %s is missing", name))
		}
		return v
	}
	or := func(name, otherwise string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return otherwise
	}
	wrong := func(name, rule string) {
		errs = append(errs, fmt.Errorf("the environment variable %s is %.60q; it is %s", name, getenv(name), rule))
	}
	duration := func(name string) time.Duration {
		d, err := time.ParseDuration(or(name, "0s"))
		if err != nil || d < 0 {
			wrong(name, "a duration such as 30s")
		}
		return d
	}
	c := config{
		leaseTable: need("LEASE_TABLE"), paymentsTable: need("PAYMENTS_TABLE"), resultsTable: need("RESULTS_TABLE"),
		region: need("AWS_REGION"), endpoint: or("AWS_ENDPOINT_URL_DYNAMODB", getenv("AWS_ENDPOINT_URL")),
		job: or("LEASE_JOB", "settlement"), policy: or("LEASE_POLICY", string(singleton.AtLeastOnce)),
		ttl: duration("LEASE_TTL"), pace: duration("SETTLEMENT_PACE"), fenced: or("SETTLEMENT_FENCE", "on") == "on",
		getenv: getenv,
	}
	if err := lease.CheckName(c.job); err != nil {
		wrong("LEASE_JOB", "the name of a lock")
	}
	if p := singleton.Policy(c.policy); p != singleton.AtLeastOnce && p != singleton.AtMostOnce {
		wrong("LEASE_POLICY", fmt.Sprintf("%s or %s", singleton.AtLeastOnce, singleton.AtMostOnce))
	}
	if v := or("SETTLEMENT_FENCE", "on"); v != "on" && v != "off" {
		wrong("SETTLEMENT_FENCE", "on or off")
	}
	if u, err := url.Parse(c.endpoint); c.endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("the endpoint %.60q of AWS_ENDPOINT_URL_DYNAMODB or AWS_ENDPOINT_URL is no URL with a host", c.endpoint))
	}
	return c, errors.Join(errs...)
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

func (c config) singleton() singleton.Options {
	return singleton.Options{Policy: singleton.Policy(c.policy)}
}
