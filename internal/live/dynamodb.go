package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Tables are the tables of one run in a DynamoDB.
type Tables struct {
	cfg  aws.Config
	made made
}

// OpenTables finds region and credentials as the SDK does. It makes no request to DynamoDB.
func OpenTables(ctx context.Context) (*Tables, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("configure a live DynamoDB: %w", err)
	}
	if cfg.Region == "" {
		return nil, fmt.Errorf("configure a live DynamoDB: no region; set AWS_REGION")
	}
	return &Tables{cfg: cfg, made: newMade()}, nil
}

// Client is a client that does not retry by itself, so that a test sees every request it causes.
func (t *Tables) Client(wire http.RoundTripper) *dynamodb.Client {
	return dynamodb.NewFromConfig(t.cfg, func(o *dynamodb.Options) {
		o.HTTPClient, o.Retryer = &http.Client{Transport: wire}, aws.NopRetryer{}
	})
}

// admin makes and removes tables. It leaves no connection open behind it.
func (t *Tables) admin() *dynamodb.Client {
	return dynamodb.NewFromConfig(t.cfg, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: brief()} })
}

// Name is a table's name that nobody has.
func (t *Tables) Name() string { return t.made.next("cloudlease-live-%s-%d") }

// Create makes a table and waits until it is there, for five minutes at most. One that exists is refused.
func (t *Tables) Create(ctx context.Context, in *dynamodb.CreateTableInput) error {
	api := t.admin()
	name := aws.ToString(in.TableName)
	in.Tags = append(in.Tags, types.Tag{Key: aws.String("cloudlease-live"), Value: &t.made.run})
	_, err := api.CreateTable(ctx, in)
	if _, ok := errors.AsType[*types.ResourceInUseException](err); ok {
		return refused("table", name, err)
	}
	if err != nil {
		return fmt.Errorf("create table %s: %w", name, err)
	}
	t.made.add(name)
	there := dynamodb.NewTableExistsWaiter(api, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 100*time.Millisecond, 3*time.Second
	})
	return there.Wait(ctx, &dynamodb.DescribeTableInput{TableName: in.TableName}, 5*time.Minute)
}

// Delete removes a table that Create has made.
func (t *Tables) Delete(ctx context.Context, name string) error {
	if err := t.made.take(name); err != nil {
		return err
	}
	_, err := t.admin().DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name})
	return err
}
