package dynamolock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/lease"
)

// TableAPI is the part of *dynamodb.Client that EnsureTable and CheckTable use. A service that only locks needs none of it.
type TableAPI interface {
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
	UpdateTimeToLive(context.Context, *dynamodb.UpdateTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
	UpdateContinuousBackups(context.Context, *dynamodb.UpdateContinuousBackupsInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateContinuousBackupsOutput, error)
}

// TableOptions say how a lock table is made and what is accepted of one that exists.
type TableOptions struct {
	// DeletionProtection refuses DeleteTable until it is turned off.
	DeletionProtection bool
	// PointInTimeRecovery keeps continuous backups. After a restore let one TTL pass before clients start.
	PointInTimeRecovery bool
	// KMSKey encrypts the table with this key (id, ARN or alias); clients then need the use of it. Default: the key that
	// DynamoDB owns.
	KMSKey string
	// PurgeRecords turns item expiry on for the records of single occurrences (attribute "purge"). Locks are never purged:
	// a lock's item carries its token.
	PurgeRecords bool
	// HomeRegion accepts a table with last-writer-wins replicas if the client talks to this region. Every client must
	// then name the same region: a lock taken in another region is not seen here.
	HomeRegion string
	// Tags are put on a table that is made.
	Tags map[string]string
}

// EnsureTable makes the lock table if there is none, waits until it is active, and checks it as CheckTable does. It is
// safe to call from several processes at once. It blocks until ctx ends at the latest; making a table takes some seconds.
// An existing table is not changed, but for what PointInTimeRecovery and PurgeRecords turn on.
func EnsureTable(ctx context.Context, api TableAPI, table string, o *TableOptions) error {
	a := admin{api: api, table: table}
	if o != nil {
		a.o = *o
	}
	d, err := a.describe(ctx)
	if errors.Is(err, lease.ErrMisconfigured) { // there is none
		if err := a.create(ctx); err != nil {
			return err
		}
		d, err = a.describe(ctx)
	}
	if err == nil || errors.Is(err, lease.ErrMisconfigured) {
		d, err = a.untilActive(ctx, d)
	}
	if err != nil {
		return err
	}
	if err := a.check(ctx, d); err != nil {
		return err
	}
	return a.turnOn(ctx)
}

// CheckTable tells whether the table can keep locks: it is active, its key is the string "name" alone, no item expiry can
// remove a lock, and it has no replica that would let two regions grant one lock. It makes two requests
// (dynamodb:DescribeTable, dynamodb:DescribeTimeToLive) and changes nothing. The error is ErrMisconfigured and names what
// was expected and what was found.
func CheckTable(ctx context.Context, api TableAPI, table string, o *TableOptions) error {
	a := admin{api: api, table: table}
	if o != nil {
		a.o = *o
	}
	d, err := a.describe(ctx)
	if err != nil {
		return err
	}
	return a.check(ctx, d)
}

// Open is New for a table that CheckTable has found good.
func Open(ctx context.Context, api interface {
	API
	TableAPI
}, table string, o *Options, t *TableOptions,
) (*Store, error) {
	s, err := New(api, table, o)
	if err != nil {
		return nil, err
	}
	return s, CheckTable(ctx, api, table, t)
}

type admin struct {
	api   TableAPI
	table string
	o     TableOptions
}

func (a admin) fault(format string, args ...any) error {
	return &lease.Error{
		Op: "check", Store: place(a.table), Class: lease.ErrMisconfigured, Err: fmt.Errorf(format, args...),
	}
}

func (a admin) describe(ctx context.Context) (*types.TableDescription, error) {
	out, err := a.api.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &a.table})
	if err != nil {
		return nil, fail(ctx, "check", a.table, "", false, err)
	}
	return out.Table, nil
}

func (a admin) create(ctx context.Context) error {
	in := CreateTableInput(a.table)
	in.DeletionProtectionEnabled = &a.o.DeletionProtection
	if a.o.KMSKey != "" {
		in.SSESpecification = &types.SSESpecification{
			Enabled: aws.Bool(true), SSEType: types.SSETypeKms, KMSMasterKeyId: &a.o.KMSKey,
		}
	}
	for k, v := range a.o.Tags {
		in.Tags = append(in.Tags, types.Tag{Key: &k, Value: &v})
	}
	_, err := a.api.CreateTable(ctx, in)
	if _, inUse := errors.AsType[*types.ResourceInUseException](err); err == nil || inUse { // another starter was first
		return nil
	}
	return fail(ctx, "create", a.table, "", false, err)
}

// untilActive waits for a table that is being made. A table that another starter makes may not be described at once.
func (a admin) untilActive(ctx context.Context, d *types.TableDescription) (*types.TableDescription, error) {
	for pause := 100 * time.Millisecond; d == nil || d.TableStatus == types.TableStatusCreating; pause = min(2*pause, time.Second) {
		if !sleep(ctx, pause) {
			return nil, &lease.Error{
				Op: "create", Store: place(a.table), Class: lease.ErrUnavailable,
				Err: fmt.Errorf("not active yet: %w", lease.Cause(ctx)),
			}
		}
		next, err := a.describe(ctx)
		if err != nil && !errors.Is(err, lease.ErrMisconfigured) && !errors.Is(err, lease.ErrUnavailable) {
			return nil, err
		}
		d = next
	}
	return d, nil
}

func (a admin) check(ctx context.Context, d *types.TableDescription) error {
	if s := d.TableStatus; s != types.TableStatusActive && s != types.TableStatusUpdating {
		return a.fault("it is %s, not ACTIVE", s)
	}
	if found := schemaOf(d); found != wantedSchema {
		return a.fault("its key is %s, expected %s", found, wantedSchema)
	}
	if err := a.checkReplicas(d); err != nil {
		return err
	}
	return a.checkExpiry(ctx)
}

const wantedSchema = "name (S, HASH)"

// schemaOf spells a table's key.
func schemaOf(d *types.TableDescription) string {
	typeOf := map[string]types.ScalarAttributeType{}
	for _, def := range d.AttributeDefinitions {
		typeOf[aws.ToString(def.AttributeName)] = def.AttributeType
	}
	var parts []string
	for _, k := range d.KeySchema {
		name := aws.ToString(k.AttributeName)
		parts = append(parts, fmt.Sprintf("%s (%s, %s)", name, typeOf[name], k.KeyType))
	}
	return strings.Join(parts, " + ")
}

// checkReplicas refuses regions that grant the same lock behind each other's back.
func (a admin) checkReplicas(d *types.TableDescription) error {
	if len(d.Replicas) == 0 || d.MultiRegionConsistency == types.MultiRegionConsistencyStrong {
		return nil
	}
	var regions []string
	for _, r := range d.Replicas {
		regions = append(regions, aws.ToString(r.RegionName))
	}
	slices.Sort(regions)
	here := "an unknown region"
	if at, err := arn.Parse(aws.ToString(d.TableArn)); err == nil {
		here = at.Region
	}
	switch a.o.HomeRegion {
	case here:
		return nil
	case "":
		return a.fault("it has last-writer-wins replicas (%s): two regions would grant one lock; use a table in one region, "+
			"one with strong multi-region consistency, or set HomeRegion and lock in that region only", strings.Join(regions, ", "))
	}
	return a.fault("it has replicas (%s) and its home region is %s, but this client talks to %s: point it at the home region",
		strings.Join(regions, ", "), a.o.HomeRegion, here)
}

// checkExpiry refuses item expiry on an attribute that locks have.
func (a admin) checkExpiry(ctx context.Context) error {
	out, err := a.api.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &a.table})
	if err != nil {
		return fail(ctx, "check", a.table, "", false, err)
	}
	ttl := out.TimeToLiveDescription
	if ttl == nil || ttl.AttributeName == nil || *ttl.AttributeName == attrPurge {
		return nil
	}
	if s := ttl.TimeToLiveStatus; s == types.TimeToLiveStatusDisabled || s == types.TimeToLiveStatusDisabling {
		return nil
	}
	return a.fault("item expiry is on for the attribute %q and could remove locks with their tokens; turn it off, or use %q",
		*ttl.AttributeName, attrPurge)
}

// turnOn turns on what was asked for and can be turned on at any time.
func (a admin) turnOn(ctx context.Context) error {
	if a.o.PointInTimeRecovery {
		_, err := a.api.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
			TableName: &a.table,
			PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{
				PointInTimeRecoveryEnabled: aws.Bool(true),
			},
		})
		if err != nil {
			return fail(ctx, "turn on point-in-time recovery", a.table, "", false, err)
		}
	}
	if !a.o.PurgeRecords {
		return nil
	}
	_, err := a.api.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &a.table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(attrPurge), Enabled: aws.Bool(true)},
	})
	if err != nil && !strings.Contains(err.Error(), "already enabled") {
		return fail(ctx, "turn on the expiry of records", a.table, "", false, err)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
