// Package dynamoenv makes the DynamoDB client of a function from its environment. The SDK's config module would read it too, but
// makes the binary larger by a quarter and the cold start longer, for sources of credentials that a function does not have.
package dynamoenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cloudlease/cloudlease/functions/internal/environ"
)

// Settings are where DynamoDB is and where its credentials come from.
type Settings struct {
	Region   string // AWS_REGION
	Endpoint string // AWS_ENDPOINT_URL_DYNAMODB or AWS_ENDPOINT_URL
	getenv   func(string) string
}

// Configure reads the settings with r, which reports what is wrong with them.
func Configure(r *environ.Reader, getenv func(string) string) Settings {
	s := Settings{
		Region: r.Need("AWS_REGION"), Endpoint: r.Or("AWS_ENDPOINT_URL_DYNAMODB", r.Get("AWS_ENDPOINT_URL")), getenv: getenv,
	}
	if u, err := url.Parse(s.Endpoint); s.Endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		r.Fault(fmt.Errorf("the endpoint %.60q of AWS_ENDPOINT_URL_DYNAMODB or AWS_ENDPOINT_URL is no URL with a host", s.Endpoint))
	}
	return s
}

// DynamoDB makes the function's one DynamoDB client. Tests change it.
func (s Settings) DynamoDB(changes ...func(*dynamodb.Options)) *dynamodb.Client {
	o := dynamodb.Options{Region: s.Region, Credentials: aws.CredentialsProviderFunc(s.Credentials)}
	if s.Endpoint != "" {
		o.BaseEndpoint = aws.String(s.Endpoint)
	}
	return dynamodb.New(o, changes...)
}

// Credentials are those that Lambda puts into the environment of a function. They stay the same for its environment's life.
func (s Settings) Credentials(context.Context) (aws.Credentials, error) {
	creds := aws.Credentials{
		AccessKeyID: s.getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: s.getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken: s.getenv("AWS_SESSION_TOKEN"), Source: "environment",
	}
	if !creds.HasKeys() {
		return creds, errors.New("the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are missing")
	}
	return creds, nil
}
