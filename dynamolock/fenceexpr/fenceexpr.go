// Package fenceexpr is dynamolock.Fence for the SDK's expression builder
// (github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression).
//
//	f := dynamolock.FenceOf(l)
//	expr, err := expression.NewBuilder().
//		WithUpdate(fenceexpr.Set(expression.Set(expression.Name("state"), expression.Value("paid")), f)).
//		WithCondition(expression.Name("state").Equal(expression.Value("open")).And(fenceexpr.Condition(f))).
//		Build()
//
// Ask for the item that refused the write (types.ReturnValuesOnConditionCheckFailureAllOld), so that f.Refused can tell a stale
// write from a failure of your own condition.
//
// It is a package of its own so that programs that do not use the builder do not link it.
package fenceexpr

import (
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"github.com/cloudlease/cloudlease/dynamolock"
)

// The attributes of a fenced item, see dynamolock.Fence.
const (
	attrFence  = "fence"
	attrHolder = "fence_holder"
)

// Condition is the fence as a condition: nobody has written yet, or an older token has, or this one for the same holder.
// Join it to your own with And.
func Condition(f dynamolock.Fence) expression.ConditionBuilder {
	fence, holder := expression.Name(attrFence), expression.Name(attrHolder)
	token, me := values(f)
	return expression.Or(fence.AttributeNotExists(), fence.LessThan(token), fence.Equal(token).And(holder.Equal(me)))
}

// Set adds to u what a fenced update sets. Like the builder's own methods it changes u; an empty u is fine. A fenced put takes
// f.Attributes into its item instead.
func Set(u expression.UpdateBuilder, f dynamolock.Fence) expression.UpdateBuilder {
	token, me := values(f)
	return u.Set(expression.Name(attrFence), token).Set(expression.Name(attrHolder), me)
}

func values(f dynamolock.Fence) (token, holder expression.ValueBuilder) {
	attrs := f.Attributes()
	return expression.Value(attrs[attrFence]), expression.Value(attrs[attrHolder])
}
