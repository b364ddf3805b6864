package drive

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// The bare clients are the least that an SDK can do: no token, no check of who is who after a lost answer, no clock but this
// host's. They are the floor that a lock can be compared with, and no lock to be used.

// waitBare is the pause of a bare client that found the lock held: what most people write first.
const waitBare = time.Second

type bareDynamoDB struct {
	Settings
	db *dynamodb.Client
}

func newBareDynamoDB(s Settings) (Library, error) {
	return &bareDynamoDB{s, emulator.Client(s.URL, nil)}, nil
}

func (b *bareDynamoDB) Open(context.Context) (Client, error) {
	return keeping(&bareItem{bareDynamoDB: b, me: uuid.NewString()}, b.TTL), nil
}

type bareItem struct {
	*bareDynamoDB
	me string
}

type attrs = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(t time.Time) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(t.UnixMilli(), 10)}
}

// update is one conditional UpdateItem.
func (b *bareItem) update(ctx context.Context, lock, set, condition string, values attrs) error {
	_, err := b.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &b.Table, Key: attrs{"name": text(lock)}, UpdateExpression: &set, ConditionExpression: &condition,
		ExpressionAttributeValues: values,
	})
	if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); refused {
		return ErrHeld
	}
	return err
}

func (b *bareItem) try(ctx context.Context, lock string) error {
	now := time.Now()
	return b.update(ctx, lock, "SET me = :me, ends = :e", "attribute_not_exists(ends) OR ends < :now",
		attrs{":me": text(b.me), ":e": number(now.Add(b.TTL)), ":now": number(now)})
}

func (b *bareItem) renew(ctx context.Context, lock string) error {
	return b.update(ctx, lock, "SET ends = :e", "me = :me", attrs{":me": text(b.me), ":e": number(time.Now().Add(b.TTL))})
}

func (b *bareItem) release(ctx context.Context, lock string) error {
	return b.update(ctx, lock, "SET ends = :e", "me = :me", attrs{":me": text(b.me), ":e": number(time.Unix(0, 0))})
}

// Deliver is one conditional write per delivery and nothing else: a run that dies is never repeated.
func (b *bareItem) deliver(ctx context.Context, job string, at time.Time) error {
	_, err := b.db.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &b.Table, Item: attrs{"name": text(fmt.Sprintf("%s/%d", job, at.Unix()))},
		ConditionExpression: aws.String("attribute_not_exists(#k)"), ExpressionAttributeNames: map[string]string{"#k": "name"},
	})
	if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); refused {
		return ErrHeld
	}
	return err
}

type bareAzure struct {
	Settings
	c *container.Client
}

func newBareAzure(s Settings) (Library, error) {
	c, err := blobContainer(s)
	return &bareAzure{s, c}, err
}

func (b *bareAzure) Open(context.Context) (Client, error) {
	return keeping(&bareBlob{bareAzure: b}, b.TTL), nil
}

type bareBlob struct {
	*bareAzure
	leases held[*azlease.BlobClient]
}

func (b *bareBlob) try(ctx context.Context, lock string) error {
	page := b.c.NewBlockBlobClient(lock)
	l, err := azlease.NewBlobClient(page, nil)
	if err != nil {
		return err
	}
	seconds := int32(b.TTL / time.Second) //nolint:gosec // a minute at most
	_, err = l.AcquireLease(ctx, seconds, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		// Another one may make it, and take it, meanwhile.
		_, err = page.Upload(ctx, empty{}, ifNew)
		if err != nil && !bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.LeaseIDMissing) {
			return err
		}
		_, err = l.AcquireLease(ctx, seconds, nil)
	}
	if bloberror.HasCode(err, bloberror.LeaseAlreadyPresent) {
		return ErrHeld
	}
	if err == nil {
		b.leases.put(lock, l)
	}
	return err
}

func (b *bareBlob) renew(ctx context.Context, lock string) error {
	l, err := b.leases.get(lock)
	if err == nil {
		_, err = l.RenewLease(ctx, nil)
	}
	return err
}

func (b *bareBlob) release(ctx context.Context, lock string) error {
	l, err := b.leases.take(lock)
	if err == nil {
		_, err = l.ReleaseLease(ctx, nil)
	}
	return err
}

// Deliver is a blob per occurrence, made if there is none.
func (b *bareBlob) deliver(ctx context.Context, job string, at time.Time) error {
	_, err := b.c.NewBlockBlobClient(fmt.Sprintf("%s-%d", job, at.Unix())).Upload(ctx, empty{}, ifNew)
	if bloberror.HasCode(err, bloberror.BlobAlreadyExists) {
		return ErrHeld
	}
	return err
}

type bareConsul struct {
	Settings
	api *api.Client
}

func newBareConsul(s Settings) (Library, error) {
	c, err := api.NewClient(consulConfig(s))
	return &bareConsul{s, c}, err
}

// Open makes a session, which all locks of the client share.
func (b *bareConsul) Open(ctx context.Context) (Client, error) {
	id, _, err := b.api.Session().CreateNoChecks(&api.SessionEntry{TTL: b.TTL.String()}, new(api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	return sharing(ctx, &bareSession{bareConsul: b, id: id}, b.TTL), nil
}

type bareSession struct {
	*bareConsul
	id string
}

func (b *bareSession) txn(ctx context.Context, verb api.KVOp, lock string) error {
	done, _, _, err := b.api.Txn().Txn(api.TxnOps{{KV: &api.KVTxnOp{Verb: verb, Key: b.Table + "/" + lock, Session: b.id}}},
		new(api.QueryOptions{}).WithContext(ctx))
	if err == nil && !done {
		return ErrHeld
	}
	return err
}

func (b *bareSession) try(ctx context.Context, lock string) error {
	return b.txn(ctx, api.KVLock, lock)
}

func (b *bareSession) release(ctx context.Context, lock string) error {
	return b.txn(ctx, api.KVUnlock, lock)
}

func (b *bareSession) renew(ctx context.Context, _ string) error {
	_, _, err := b.api.Session().Renew(b.id, new(api.WriteOptions{}).WithContext(ctx))
	return err
}

// Deliver makes the occurrence's key if there is none.
func (b *bareSession) deliver(ctx context.Context, job string, at time.Time) error {
	done, _, err := b.api.KV().CAS(&api.KVPair{Key: fmt.Sprintf("%s/%s/%d", b.Table, job, at.Unix())}, new(api.WriteOptions{}).WithContext(ctx))
	if err == nil && !done {
		return ErrHeld
	}
	return err
}

var ifNew = &blockUpload{AccessConditions: &blob.AccessConditions{
	ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(anyETag)},
}}
