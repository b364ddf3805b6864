package dynamolock

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// Fence makes writes of your own refuse a holder that was overtaken. A fenced item keeps the highest token that wrote it in
// the attribute "fence" and whose it was in "fence_holder"; the write carries the condition
//
//	attribute_not_exists(fence) OR fence < :token OR (fence = :token AND fence_holder = :holder)
//
// beside your own condition, and sets both. Every writer of the item must carry it.
type Fence struct {
	Token  lease.Token
	Holder string
}

// FenceOf is the fence of a lease.
func FenceOf(l *lease.Lease) Fence { return Fence{Token: l.Token(), Holder: l.Holder()} }

const fenceCondition = "(attribute_not_exists(#cl_fence) OR #cl_fence < :cl_token OR " +
	"(#cl_fence = :cl_token AND #cl_holder = :cl_holder))"

// Condition is the fence as a condition expression, in parentheses; it uses Names and Values.
func (f Fence) Condition() string { return fenceCondition }

// Assignments are what a fenced update sets, for the SET clause of an update expression; it uses Names and Values.
func (f Fence) Assignments() string { return "#cl_fence = :cl_token, #cl_holder = :cl_holder" }

// Names are the attribute names of Condition and Assignments.
func (f Fence) Names() map[string]string {
	return map[string]string{"#cl_fence": attrFence, "#cl_holder": attrFenceHolder}
}

// Values are the attribute values of Condition and Assignments.
func (f Fence) Values() map[string]types.AttributeValue {
	return item{":cl_token": num(f.Token), ":cl_holder": str(f.Holder)}
}

// Attributes are what a fenced item carries.
func (f Fence) Attributes() map[string]types.AttributeValue {
	return item{attrFence: num(f.Token), attrFenceHolder: str(f.Holder)}
}

// Put fences a PutItem: its item gets the fence's attributes, its condition the fence's.
func (f Fence) Put(in *dynamodb.PutItemInput) {
	in.Item = merged(in.Item, f.Attributes())
	f.guard(&in.ConditionExpression, &in.ExpressionAttributeNames, &in.ExpressionAttributeValues)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
}

// Update fences an UpdateItem: its SET clause gets the fence's assignments, its condition the fence's.
func (f Fence) Update(in *dynamodb.UpdateItemInput) {
	in.UpdateExpression = f.assign(in.UpdateExpression)
	f.guard(&in.ConditionExpression, &in.ExpressionAttributeNames, &in.ExpressionAttributeValues)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
}

// Delete fences a DeleteItem. The deletion forgets the token with the item: a stale writer can make the item again. Where
// that matters, update the item to a marker instead.
func (f Fence) Delete(in *dynamodb.DeleteItemInput) {
	f.guard(&in.ConditionExpression, &in.ExpressionAttributeNames, &in.ExpressionAttributeValues)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
}

// Transact fences the puts, updates and deletes of a transaction. Checks are left as they are.
func (f Fence) Transact(items []types.TransactWriteItem) {
	for _, it := range items {
		switch {
		case it.Put != nil:
			it.Put.Item = merged(it.Put.Item, f.Attributes())
			f.guard(&it.Put.ConditionExpression, &it.Put.ExpressionAttributeNames, &it.Put.ExpressionAttributeValues)
			it.Put.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
		case it.Update != nil:
			it.Update.UpdateExpression = f.assign(it.Update.UpdateExpression)
			f.guard(&it.Update.ConditionExpression, &it.Update.ExpressionAttributeNames, &it.Update.ExpressionAttributeValues)
			it.Update.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
		case it.Delete != nil:
			f.guard(&it.Delete.ConditionExpression, &it.Delete.ExpressionAttributeNames, &it.Delete.ExpressionAttributeValues)
			it.Delete.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
		}
	}
}

// guard adds the fence to a condition with its names and values. The caller's maps are not changed.
func (f Fence) guard(condition **string, names *map[string]string, values *map[string]types.AttributeValue) {
	all := fenceCondition
	if own := aws.ToString(*condition); own != "" {
		all = "(" + own + ") AND " + fenceCondition
	}
	*condition = &all
	*names = merged(*names, f.Names())
	*values = merged(*values, f.Values())
}

// assign adds the fence's assignments to the SET clause of an update expression, or adds the clause. Keywords are looked for
// outside of names, which cannot hold a blank.
func (f Fence) assign(update *string) *string {
	words := strings.Fields(aws.ToString(update))
	at := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, "SET") })
	if at < 0 {
		words = append([]string{"SET " + f.Assignments()}, words...)
	} else {
		words[at] += " " + f.Assignments() + ","
	}
	all := strings.Join(words, " ")
	return &all
}

func merged[V any](a, b map[string]V) map[string]V {
	m := make(map[string]V, len(a)+len(b))
	maps.Copy(m, a)
	maps.Copy(m, b)
	return m
}

// Refused turns the error of a fenced write into a *fence.StaleError if it was the fence that refused it, and returns it
// unchanged if it was your own condition, Store.Check or something else. key is for the error's text.
func (f Fence) Refused(key string, err error) error {
	for _, it := range refusals(err) {
		have, decodeErr := entryOf(it)
		if decodeErr == nil && !fence.Admits(have, f.Token, f.Holder) {
			return &fence.StaleError{Key: key, Token: f.Token, Seen: have.Token, Holder: have.Holder}
		}
	}
	return err
}

// refusals are the items that made the conditions of a write or of a transaction fail.
func refusals(err error) []map[string]types.AttributeValue {
	if it, ok := refused(err); ok {
		return []item{it}
	}
	var items []item
	if tx, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		for _, reason := range tx.CancellationReasons {
			if aws.ToString(reason.Code) == "ConditionalCheckFailed" {
				items = append(items, reason.Item)
			}
		}
	}
	return items
}

// Check is a condition on the lock's own item, for a transaction whose writes must stop the instant the lock moves: it fails
// as soon as the lock is released, broken or taken, even if the next holder has written nothing yet. It does not look at the
// time: until somebody takes an expired lock, the check passes.
func (s *Store) Check(l *lease.Lease) types.TransactWriteItem {
	g := l.Grant()
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &s.table, Key: keyOf(g.Name),
		ConditionExpression:       aws.String("#v = :v AND #h = :h"),
		ExpressionAttributeNames:  map[string]string{"#v": attrVersion, "#h": attrHolder},
		ExpressionAttributeValues: item{":v": num(g.Token), ":h": str(holderOf(g.Request))},
	}}
}
