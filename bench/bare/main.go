// Command bare is the least Lambda function that takes a lock in DynamoDB: the floor that the project's own function is measured
// beside. Its lock has no token and trusts this host's clock; it is no example.
package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type attrs = map[string]types.AttributeValue

func main() {
	db := dynamodb.New(dynamodb.Options{
		Region: os.Getenv("AWS_REGION"), BaseEndpoint: aws.String(os.Getenv("AWS_ENDPOINT_URL")),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
		}),
	})
	lambda.Start(func(ctx context.Context) error {
		if err := write(ctx, db, time.Now().Add(30*time.Second), "attribute_not_exists(ends) OR ends < :now"); err != nil {
			return err
		}
		return write(ctx, db, time.Unix(0, 0), "ends > :now")
	})
}

func write(ctx context.Context, db *dynamodb.Client, ends time.Time, condition string) error {
	_, err := db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: aws.String(os.Getenv("LEASE_TABLE")), Key: attrs{"name": &types.AttributeValueMemberS{Value: "job"}},
		UpdateExpression: aws.String("SET ends = :e"), ConditionExpression: &condition,
		ExpressionAttributeValues: attrs{":e": number(ends), ":now": number(time.Now())},
	})
	return err
}

func number(t time.Time) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(t.UnixMilli(), 10)}
}
