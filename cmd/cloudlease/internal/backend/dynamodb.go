package backend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/lease"
)

// dynamo is a DynamoDB table. Credentials, and the region where the URL has none, come from where the AWS CLI finds them.
type dynamo struct {
	table    string
	region   string
	profile  string
	endpoint string
	home     string // the region that alone locks, where the table has replicas
}

func newDynamoDB(p place) (Backend, error) {
	if err := p.only("region", "endpoint", "profile", "home"); err != nil {
		return nil, err
	}
	if p.Host == "" || p.Path != "" && p.Path != "/" {
		return nil, invalid("the store's URL names no table; write it as dynamodb://TABLE?region=REGION")
	}
	endpoint, err := p.endpoint()
	if err != nil {
		return nil, err
	}
	return &dynamo{
		table: p.Host, region: p.query.Get("region"), profile: p.query.Get("profile"), endpoint: endpoint, home: p.query.Get("home"),
	}, nil
}

func (d *dynamo) URL() string {
	return canonical("dynamodb", d.table, "", map[string]string{
		"region": d.region, "profile": d.profile, "endpoint": d.endpoint, "home": d.home,
	})
}

func (d *dynamo) Shared() bool { return true }

// client makes the SDK's client and fills in the region.
func (d *dynamo) client(ctx context.Context) (*dynamodb.Client, aws.Config, error) {
	options := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})} // what matters comes back as an error
	if d.region != "" {
		options = append(options, config.WithRegion(d.region))
	}
	if d.profile != "" {
		options = append(options, config.WithSharedConfigProfile(d.profile))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, cfg, fmt.Errorf("%w: read the AWS configuration: %w", lease.ErrMisconfigured, err)
	}
	if cfg.Region == "" {
		return nil, cfg, invalid("no AWS region is known: write dynamodb://%s?region=eu-west-1, or set AWS_REGION", d.table)
	}
	d.region = cfg.Region
	return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		if d.endpoint != "" {
			o.BaseEndpoint = aws.String(d.endpoint)
		}
	}), cfg, nil
}

func (d *dynamo) Open(ctx context.Context) (lease.Store, error) {
	api, _, err := d.client(ctx)
	if err != nil {
		return nil, err
	}
	return dynamolock.New(api, d.table, nil)
}

func (d *dynamo) Init(ctx context.Context, o InitOptions) (string, error) {
	api, _, err := d.client(ctx)
	if err != nil {
		return "", err
	}
	err = dynamolock.EnsureTable(ctx, api, d.table, &dynamolock.TableOptions{
		DeletionProtection: o.Protect, PointInTimeRecovery: o.Backups, PurgeRecords: o.Purge, HomeRegion: d.home,
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("table %s in %s is there and can keep locks", d.table, d.region), nil
}

// Check implements Backend.
func (d *dynamo) Check(ctx context.Context, report func(Item)) {
	api, cfg, err := d.client(ctx)
	if err != nil {
		report(verdict("configuration", "", "", err))
		return
	}
	creds, err := cfg.Credentials.Retrieve(ctx)
	report(verdict("credentials", fmt.Sprintf("from %s", creds.Source),
		"run aws configure, aws sso login, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", err))
	if err != nil {
		return
	}
	if !d.reach(ctx, api, report) {
		return
	}
	d.permissions(ctx, api, report)
	d.describe(ctx, api, report)
	if s, err := dynamolock.New(api, d.table, nil); err == nil { // the table has a name
		round(ctx, s, report)
	}
}

// reach reads the probe's item, which tells whether the service, the table and the first permission are there, and the time.
func (d *dynamo) reach(ctx context.Context, api *dynamodb.Client, report func(Item)) bool {
	sent := time.Now()
	out, err := api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &d.table, ConsistentRead: aws.Bool(true), Key: probeKey(),
	})
	received := time.Now()
	header := headerOf(err)
	if err != nil && header == nil {
		report(verdict("reachability", "", "check the endpoint, the region, the network and its proxies", d.classified(ctx, err)))
		return false
	}
	report(Item{Check: "reachability", Status: OK, Found: fmt.Sprintf("DynamoDB in %s answered in %v", d.region, received.Sub(sent).Round(time.Millisecond))})
	var date time.Time
	if err == nil {
		date, _ = awsmiddleware.GetServerTime(out.ResultMetadata)
	} else {
		date, _ = http.ParseTime(header.Get("Date"))
	}
	report(clockItem(date, sent, received))
	err = d.classified(ctx, err)
	item := verdict("dynamodb:GetItem", "allowed", d.allow("GetItem"), err)
	if errors.Is(err, lease.ErrMisconfigured) {
		item.Fix = "make the table with: cloudlease init; or correct its name, its region or the endpoint"
	}
	report(item)
	return !errors.Is(err, lease.ErrMisconfigured)
}

// permissions tries the other actions of a holder and an operator in a way that changes nothing.
func (d *dynamo) permissions(ctx context.Context, api *dynamodb.Client, report func(Item)) {
	_, err := api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &d.table, Key: probeKey(), UpdateExpression: aws.String("SET #x = :x"),
		ConditionExpression:       aws.String("attribute_exists(#n) AND attribute_not_exists(#n)"), // never true
		ExpressionAttributeNames:  map[string]string{"#n": "name", "#x": "probe"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":x": &types.AttributeValueMemberS{Value: "never written"}},
	})
	if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); refused {
		err = nil // as it had to be: the action is allowed
	}
	report(verdict("dynamodb:UpdateItem", "allowed", d.allow("UpdateItem"), d.classified(ctx, err)))
	_, err = api.Scan(ctx, &dynamodb.ScanInput{TableName: &d.table, Limit: aws.Int32(1)})
	item := verdict("dynamodb:Scan", "allowed", d.allow("Scan"), d.classified(ctx, err))
	if err != nil {
		item.Status = Warn
		item.Found += " (only list, watch and some histories need it)"
	}
	report(item)
}

// describe looks at the table itself. The rules are dynamolock's: each is asked with the others' part of the description
// taken out.
func (d *dynamo) describe(ctx context.Context, api *dynamodb.Client, report func(Item)) {
	out, err := api.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &d.table})
	if err != nil {
		report(d.unseen("schema and replicas", "DescribeTable", err))
	} else {
		alone := *out.Table
		alone.Replicas = nil
		err := d.judge(ctx, described{table: &alone})
		report(verdict("schema", "hash key name (S), "+string(alone.TableStatus), "make a table with: cloudlease init", err))
		if err == nil {
			found := "none: the table is in one region"
			if len(out.Table.Replicas) > 0 {
				found = fmt.Sprintf("%d, in a way that keeps locks apart", len(out.Table.Replicas))
			}
			report(verdict("replicas", found, "add home=REGION to the store's URL if all who lock use one region, or use a table in one region",
				d.judge(ctx, described{table: out.Table})))
		}
	}
	expiry, err := api.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &d.table})
	if err != nil {
		report(d.unseen("item expiry", "DescribeTimeToLive", err))
		return
	}
	found := "off for locks"
	if t := expiry.TimeToLiveDescription; t != nil && t.AttributeName != nil {
		found = fmt.Sprintf("off for locks (%s for the attribute %q)", t.TimeToLiveStatus, *t.AttributeName)
	}
	good := dynamolock.CreateTableInput(d.table)
	report(verdict("item expiry", found, "turn it off for locks: a lock's item carries its token", d.judge(ctx, described{
		table: &types.TableDescription{
			TableStatus: types.TableStatusActive, KeySchema: good.KeySchema, AttributeDefinitions: good.AttributeDefinitions,
		},
		expiry: expiry.TimeToLiveDescription,
	})))
}

func (d *dynamo) judge(ctx context.Context, t described) error {
	return dynamolock.CheckTable(ctx, t, d.table, &dynamolock.TableOptions{HomeRegion: d.home})
}

// unseen is the item of something that a locker need not be allowed to see.
func (d *dynamo) unseen(check, action string, err error) Item {
	item := Item{Check: check, Status: Skipped, Found: fmt.Sprintf("dynamodb:%s: %s", action, shortly(err))}
	item.Fix = "run doctor as an administrator once, or allow dynamodb:" + action + "; locking does not need it"
	return item
}

func (d *dynamo) allow(action string) string {
	return fmt.Sprintf("check the credentials, and allow dynamodb:%s on the table (cloudlease init --print policy); a policy that "+
		"confines names (dynamodb:LeadingKeys) has to let %q pass for this check", action, Probe)
}

// described answers with a table's description that was read before.
type described struct {
	dynamolock.TableAPI // of which CheckTable calls the two methods below
	table               *types.TableDescription
	expiry              *types.TimeToLiveDescription
}

func (t described) DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	return &dynamodb.DescribeTableOutput{Table: t.table}, nil
}

func (t described) DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	return &dynamodb.DescribeTimeToLiveOutput{TimeToLiveDescription: t.expiry}, nil
}

// classified gives an error of the SDK the class and the hint that dynamolock gives it.
func (d *dynamo) classified(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	s, newErr := dynamolock.New(failing{err: err}, d.table, nil)
	if newErr != nil {
		return newErr
	}
	_, err = s.Inspect(ctx, Probe)
	return err
}

// failing answers every read with one error.
type failing struct {
	dynamolock.API
	err error
}

func (f failing) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return nil, f.err
}

func probeKey() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"name": &types.AttributeValueMemberS{Value: Probe}}
}

// headerOf is the header of the answer that an error of the SDK came with, nil if none came.
func headerOf(err error) http.Header {
	if resp, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && resp.HTTPStatusCode() != 0 {
		return resp.Response.Header
	}
	return nil
}

// shortly is what a service said, without the layers around it.
func shortly(err error) string {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}
