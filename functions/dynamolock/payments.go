package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lease"
)

// payments are a DynamoDB table with the hash key "day" (S) and the range key "id" (S), and the attributes "cents" (N)
// and "currency" (S).
type payments struct {
	api   *dynamodb.Client
	table string
}

// Day implements settlement.Payments by consistent queries, one per page.
func (p *payments) Day(ctx context.Context, day string) iter.Seq2[settlement.Payment, error] {
	return func(yield func(settlement.Payment, error) bool) {
		pages := dynamodb.NewQueryPaginator(p.api, &dynamodb.QueryInput{
			TableName: &p.table, ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("#d = :d"),
			ExpressionAttributeNames:  map[string]string{"#d": "day"},
			ExpressionAttributeValues: map[string]types.AttributeValue{":d": &types.AttributeValueMemberS{Value: day}},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(settlement.Payment{}, p.unread(err))
				return
			}
			for _, item := range page.Items {
				payment, err := decode(item)
				if err != nil {
					err = fmt.Errorf("payment %q of the table %s: %w", payment.ID, p.table, err)
				}
				if !yield(payment, err) || err != nil {
					return
				}
			}
		}
	}
}

// unread gives an error its class, so that an alarm tells a deployment that is wrong from a service that is out.
func (p *payments) unread(err error) error {
	failed := &lease.Error{Op: "read", Store: "DynamoDB table " + p.table, Err: err}
	api, answered := errors.AsType[smithy.APIError](err)
	switch {
	case !answered:
		return fmt.Errorf("read the table %s: %w", p.table, err)
	case api.ErrorCode() == "AccessDeniedException":
		failed.Class, failed.Hint = lease.ErrDenied, "the function's role needs dynamodb:Query on the table"
	case api.ErrorCode() == "ResourceNotFoundException":
		failed.Class, failed.Hint = lease.ErrMisconfigured, "set PAYMENTS_TABLE to a table of this region"
	default:
		return fmt.Errorf("read the table %s: %w", p.table, err)
	}
	return failed
}

func decode(item map[string]types.AttributeValue) (settlement.Payment, error) {
	id, hasID := item["id"].(*types.AttributeValueMemberS)
	cents, hasCents := item["cents"].(*types.AttributeValueMemberN)
	currency, hasCurrency := item["currency"].(*types.AttributeValueMemberS)
	if !hasID {
		return settlement.Payment{}, errors.New(`it has no string attribute "id"`)
	}
	p := settlement.Payment{ID: id.Value}
	if !hasCents || !hasCurrency {
		return p, errors.New(`it lacks the number "cents" or the string "currency"`)
	}
	n, err := strconv.ParseInt(cents.Value, 10, 64)
	if err != nil {
		return p, fmt.Errorf(`its "cents" are no whole number: %w`, err)
	}
	p.Cents, p.Currency = n, currency.Value
	return p, nil
}
