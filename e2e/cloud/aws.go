//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// cloud is the stand-in of AWS.
type cloud struct {
	stacks    *cloudformation.Client
	functions *lambda.Client
	schedules *scheduler.Client
	tables    *dynamodb.Client
	logs      *cloudwatchlogs.Client
	metrics   *cloudwatch.Client
	queues    *sqs.Client
	objects   *s3.Client
}

// connect refuses whatever is not on this machine: tables are deleted here.
func connect(endpoint string) (*cloud, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("the endpoint %.60q is no URL with a host; run make up, and this with make e2e-cloud", endpoint)
	}
	if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("the endpoint %s is not on this machine, and tables are deleted here; use a stand-in", u.Host)
	}
	cfg := aws.Config{
		Region: emulator.Region, BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient: &http.Client{Transport: inMemory{&http.Transport{MaxIdleConnsPerHost: 8}}},
	}
	return &cloud{
		stacks: cloudformation.NewFromConfig(cfg), functions: lambda.NewFromConfig(cfg), schedules: scheduler.NewFromConfig(cfg),
		tables: dynamodb.NewFromConfig(cfg), logs: cloudwatchlogs.NewFromConfig(cfg), metrics: cloudwatch.NewFromConfig(cfg),
		queues: sqs.NewFromConfig(cfg), objects: s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }),
	}, nil
}

// inMemory sends bodies from memory. The SDK closes its own as soon as an answer comes, which from a server on this machine may be
// before the HTTP client has seen the body's end: it then closes the connection while the answer is being read.
type inMemory struct{ *http.Transport }

func (t inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return t.Transport.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	return t.Transport.RoundTrip(r)
}

// patience is how long anything that is waited for may take. It is generous, because other work may fill the machine.
const patience = 3 * time.Minute

// until asks again and again whether something is so. What it names is what is missing in the end.
func until(ctx context.Context, what string, so func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		done, err := so(ctx)
		if done || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait until %s: %w", what, context.Cause(ctx)), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
