package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cloudlease/cloudlease/shard"
)

// stream is a generated stream: so many shards, each with so many records, numbered from 1.
type stream struct {
	shards, records int
	pace            time.Duration
}

// batchSize is how many records are read, and processed, between two checkpoints.
const batchSize = 5

// Shards implements shard.Source.
func (s stream) Shards(context.Context) ([]shard.Info, error) {
	list := make([]shard.Info, s.shards)
	for i := range list {
		list[i].ID = fmt.Sprintf("shard-%03d", i+1)
	}
	return list, nil
}

// record is a record of the stream.
type record struct {
	Shard  string `json:"shard"`
	Number int    `json:"number"`
}

// read returns the next records after the one with number n; none: the shard's end.
func (s stream) read(id string, n int) []record {
	var batch []record
	for len(batch) < batchSize && n < s.records {
		n++
		batch = append(batch, record{id, n})
	}
	return batch
}
