package emulator

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Client is a DynamoDB client for an engine at url, with made-up credentials and without the SDK's own retries, so that
// a test sees every request it causes. A nil rt is a transport of its own; with Transport any url does, and an empty one
// stands for a name that resolves nowhere.
func Client(url string, rt http.RoundTripper) *dynamodb.Client {
	if url == "" {
		url = "http://dynamodb.invalid"
	}
	if rt == nil {
		// The default of two idle connections would open and close sockets all the time under contention.
		rt = &http.Transport{MaxIdleConns: 128, MaxIdleConnsPerHost: 128}
	}
	return dynamodb.New(dynamodb.Options{
		Region:       "eu-west-1",
		BaseEndpoint: aws.String(url),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient:   &http.Client{Transport: rt},
		Retryer:      aws.NopRetryer{},
	})
}
