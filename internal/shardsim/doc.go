// Package shardsim compares what a fleet of workers costs and how it balances under two rules, on one schedule of joins, crashes,
// a rolling restart and a throttled table: package shard as it is, in virtual time, and a model of one renewal per shard, which
// is the rule of the Kinesis Client Library 2.x. Its test makes the table and the plot of docs/shards.md.
package shardsim
