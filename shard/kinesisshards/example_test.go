package kinesisshards_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/shard"
	"github.com/cloudlease/cloudlease/shard/kinesisshards"
)

// two is a stream of two shards, for the example.
type two struct{}

func (two) ListShards(context.Context, *kinesis.ListShardsInput, ...func(*kinesis.Options)) (*kinesis.ListShardsOutput, error) {
	return &kinesis.ListShardsOutput{Shards: []types.Shard{{ShardId: aws.String("shardId-0")}, {ShardId: aws.String("shardId-1")}}}, nil
}

// In a program the API is kinesis.New(...), and the function reads records with GetShardIterator and GetRecords.
func Example() {
	source, err := kinesisshards.New(two{}, kinesisshards.Options{StreamName: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	client, err := lease.New(memlease.New(), &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
	if err != nil {
		log.Fatal(err)
	}
	worker, err := shard.New(client, "orders", source, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan string, 2)
	go func() {
		fmt.Println(<-ended, <-ended)
		cancel()
	}()
	err = worker.Run(ctx, func(ctx context.Context, s *shard.Shard) error {
		// Read and process from s.Position() on; send s.Token() with every write.
		if err := s.Checkpoint(ctx, "49590338271490256608559692538361571095921575989136588898"); err != nil {
			return err
		}
		if err := s.Finish(ctx); err != nil { // GetRecords gave no next iterator
			return err
		}
		ended <- "ended"
		return nil
	})
	fmt.Println(err)
	// Output:
	// ended ended
	// <nil>
}
