package dynamolock_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/lease"
)

// control is DynamoDB's control plane for one table: creation takes time, a description may lag behind.
type control struct {
	mu      sync.Mutex
	table   *types.TableDescription
	active  time.Time // when it becomes active
	takes   time.Duration
	expiry  *types.TimeToLiveDescription
	calls   map[string]int
	created []*dynamodb.CreateTableInput
	backups bool
}

func newControl() *control { return &control{calls: map[string]int{}} }

func (c *control) called(op string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[op]++
}

func (c *control) CreateTable(_ context.Context, in *dynamodb.CreateTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	c.called("CreateTable")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.table != nil {
		return nil, &types.ResourceInUseException{Message: aws.String("it exists")}
	}
	c.created = append(c.created, in)
	c.active = time.Now().Add(c.takes)
	c.table = &types.TableDescription{
		TableName: in.TableName, KeySchema: in.KeySchema, AttributeDefinitions: in.AttributeDefinitions,
		TableArn: aws.String("arn:aws:dynamodb:eu-west-1:123456789012:table/locks"),
	}
	return &dynamodb.CreateTableOutput{}, nil
}

func (c *control) DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	c.called("DescribeTable")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.table == nil {
		return nil, &types.ResourceNotFoundException{Message: aws.String("no such table")}
	}
	d := *c.table
	if d.TableStatus == "" {
		d.TableStatus = types.TableStatusActive
		if time.Now().Before(c.active) {
			d.TableStatus = types.TableStatusCreating
		}
	}
	return &dynamodb.DescribeTableOutput{Table: &d}, nil
}

func (c *control) DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	c.called("DescribeTimeToLive")
	return &dynamodb.DescribeTimeToLiveOutput{TimeToLiveDescription: c.expiry}, nil
}

func (c *control) UpdateTimeToLive(_ context.Context, in *dynamodb.UpdateTimeToLiveInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error) {
	c.called("UpdateTimeToLive")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expiry != nil {
		return nil, &smithy.GenericAPIError{Code: "ValidationException", Message: "TimeToLive is already enabled"}
	}
	c.expiry = &types.TimeToLiveDescription{
		AttributeName: in.TimeToLiveSpecification.AttributeName, TimeToLiveStatus: types.TimeToLiveStatusEnabling,
	}
	return &dynamodb.UpdateTimeToLiveOutput{}, nil
}

func (c *control) UpdateContinuousBackups(context.Context, *dynamodb.UpdateContinuousBackupsInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateContinuousBackupsOutput, error) {
	c.called("UpdateContinuousBackups")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backups = true
	return &dynamodb.UpdateContinuousBackupsOutput{}, nil
}

// TestDY10_FiveStartersMakeOneTable: all succeed, one table, and they wait until it is active.
func TestDY10_FiveStartersMakeOneTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl()
		c.takes = 5 * time.Second
		began := time.Now()
		var wg sync.WaitGroup
		errs := make([]error, 5)
		for i := range errs {
			wg.Go(func() {
				errs[i] = dynamolock.EnsureTable(t.Context(), c, table, &dynamolock.TableOptions{
					DeletionProtection: true, PointInTimeRecovery: true, PurgeRecords: true, KMSKey: "alias/locks",
				})
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, time.Since(began), 5*time.Second)
		require.Less(t, time.Since(began), 7*time.Second)
		require.Len(t, c.created, 1)
		in := c.created[0]
		require.Equal(t, types.BillingModePayPerRequest, in.BillingMode)
		require.True(t, *in.DeletionProtectionEnabled)
		require.Equal(t, "alias/locks", *in.SSESpecification.KMSMasterKeyId)
		require.True(t, c.backups)
		require.Equal(t, "purge", *c.expiry.AttributeName)
	})
}

func TestDY10_TableNotActiveInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl()
		c.takes = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := dynamolock.EnsureTable(ctx, c, table, nil)
		requireClass(t, err, lease.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, c.calls["DescribeTable"], 12, "no storm")
	})
}

func TestDY10_WrongSchema(t *testing.T) {
	key := func(names ...string) *types.TableDescription {
		d := &types.TableDescription{TableArn: aws.String("arn:aws:dynamodb:eu-west-1:1:table/locks")}
		for i, n := range names {
			name, kind, _ := strings.Cut(n, ":")
			kt := types.KeyTypeHash
			if i > 0 {
				kt = types.KeyTypeRange
			}
			d.KeySchema = append(d.KeySchema, types.KeySchemaElement{AttributeName: &name, KeyType: kt})
			d.AttributeDefinitions = append(d.AttributeDefinitions, types.AttributeDefinition{
				AttributeName: &name, AttributeType: types.ScalarAttributeType(kind),
			})
		}
		return d
	}
	for found, d := range map[string]*types.TableDescription{
		"id (S, HASH)":                     key("id:S"),
		"name (N, HASH)":                   key("name:N"),
		"name (S, HASH) + sort (S, RANGE)": key("name:S", "sort:S"),
	} {
		c := newControl()
		c.table = d
		for _, err := range []error{
			dynamolock.CheckTable(t.Context(), c, table, nil), dynamolock.EnsureTable(t.Context(), c, table, nil),
		} {
			requireClass(t, err, lease.ErrMisconfigured)
			require.ErrorContains(t, err, found)
			require.ErrorContains(t, err, "expected name (S, HASH)")
		}
		require.LessOrEqual(t, c.calls["DescribeTable"], 3)
	}
	c := newControl()
	err := dynamolock.CheckTable(t.Context(), c, table, nil)
	requireClass(t, err, lease.ErrMisconfigured)
	require.ErrorContains(t, err, "create table locks")
	require.Empty(t, c.created, "a check makes nothing")
}

func TestItemExpiryOnLocksIsRefused(t *testing.T) {
	c := newControl()
	require.NoError(t, dynamolock.EnsureTable(t.Context(), c, table, nil))
	c.expiry = &types.TimeToLiveDescription{AttributeName: aws.String("ttl"), TimeToLiveStatus: types.TimeToLiveStatusEnabled}
	err := dynamolock.CheckTable(t.Context(), c, table, nil)
	requireClass(t, err, lease.ErrMisconfigured)
	require.ErrorContains(t, err, `"ttl"`)
	c.expiry.TimeToLiveStatus = types.TimeToLiveStatusDisabled
	require.NoError(t, dynamolock.CheckTable(t.Context(), c, table, nil))
	c.expiry = &types.TimeToLiveDescription{AttributeName: aws.String("purge"), TimeToLiveStatus: types.TimeToLiveStatusEnabled}
	require.NoError(t, dynamolock.CheckTable(t.Context(), c, table, nil))
}

// TestDY07_ReplicatedTables: last-writer-wins replicas are refused unless one region is home.
func TestDY07_ReplicatedTables(t *testing.T) {
	replicated := func(consistency types.MultiRegionConsistency) *control {
		c := newControl()
		require.NoError(t, dynamolock.EnsureTable(t.Context(), c, table, nil))
		c.table.Replicas = []types.ReplicaDescription{{RegionName: aws.String("us-east-1")}, {RegionName: aws.String("eu-central-1")}}
		c.table.MultiRegionConsistency = consistency
		return c
	}
	check := func(c *control, home string) error {
		return dynamolock.CheckTable(t.Context(), c, table, &dynamolock.TableOptions{HomeRegion: home})
	}
	for _, consistency := range []types.MultiRegionConsistency{"", types.MultiRegionConsistencyEventual} {
		c := replicated(consistency)
		err := check(c, "")
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "eu-central-1, us-east-1")
		require.ErrorContains(t, err, "HomeRegion")
		require.NoError(t, check(c, "eu-west-1"), "this client talks to the home region")
		err = check(c, "us-east-1")
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "eu-west-1")
	}
	require.NoError(t, check(replicated(types.MultiRegionConsistencyStrong), ""))
}
