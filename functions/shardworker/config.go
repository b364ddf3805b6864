package main

import (
	"strconv"
	"time"

	"github.com/cloudlease/cloudlease/functions/dynamolock/dynamoenv"
	"github.com/cloudlease/cloudlease/functions/internal/environ"
)

// config is what the function's environment says.
type config struct {
	dynamoenv.Settings
	leaseTable   string        // LEASE_TABLE
	resultsTable string        // RESULTS_TABLE
	ttl          time.Duration // LEASE_TTL, the lease package's default unless told otherwise
	name         string        // LEASE_HOLDER, the host's name unless told otherwise
	group        string        // SHARD_GROUP
	most         int           // SHARD_MAX: how many shards one invocation works on; 10 unless told otherwise
	reserve      time.Duration // SHARD_RESERVE: what is kept of an invocation for handing back; 6s unless told otherwise
	shards       int           // STREAM_SHARDS, 8 unless told otherwise
	records      int           // STREAM_RECORDS of each shard, 100 unless told otherwise
	pace         time.Duration // STREAM_PACE of one record
}

// configure reads the environment and reports all that is wrong with it at once, by name.
func configure(getenv func(string) string) (config, error) {
	r := environ.New(getenv)
	c := config{
		leaseTable: r.Need("LEASE_TABLE"), resultsTable: r.Need("RESULTS_TABLE"), ttl: r.Duration("LEASE_TTL"), name: r.Get("LEASE_HOLDER"),
		group: r.Need("SHARD_GROUP"), most: number(r, "SHARD_MAX", 10), reserve: r.Duration("SHARD_RESERVE"),
		shards: number(r, "STREAM_SHARDS", 8), records: number(r, "STREAM_RECORDS", 100), pace: r.Duration("STREAM_PACE"),
		Settings: dynamoenv.Configure(r, getenv),
	}
	if c.reserve == 0 {
		c.reserve = 6 * time.Second
	}
	return c, r.Err()
}

// number is a setting that is a whole number above 0.
func number(r *environ.Reader, name string, otherwise int) int {
	n, err := strconv.Atoi(r.Or(name, strconv.Itoa(otherwise)))
	if err != nil || n < 1 {
		r.Wrong(name, "a whole number above 0")
	}
	return n
}
