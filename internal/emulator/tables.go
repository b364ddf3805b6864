package emulator

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// CreateTables makes tables and waits until they are there: on dynalite one is not yet when its creation is answered.
func CreateTables(ctx context.Context, api *dynamodb.Client, tables ...*dynamodb.CreateTableInput) error {
	there := dynamodb.NewTableExistsWaiter(api, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 20*time.Millisecond, 200*time.Millisecond
	})
	for _, table := range tables {
		if _, err := api.CreateTable(ctx, table); err != nil {
			return fmt.Errorf("create table %s: %w", *table.TableName, err)
		}
		if err := there.Wait(ctx, &dynamodb.DescribeTableInput{TableName: table.TableName}, time.Minute); err != nil {
			return fmt.Errorf("wait for table %s: %w", *table.TableName, err)
		}
	}
	return nil
}
