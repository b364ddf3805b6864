package shard_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/shard"
)

// started runs a worker of n shards on s and returns when all have begun, with one of them, and what ends the worker.
func started(b *testing.B, s lease.Store, n int) (one *shard.Shard, took time.Duration, end func()) {
	b.Helper()
	c, err := lease.New(s, quiet())
	require.NoError(b, err)
	w, err := shard.New(c, "bench", shard.Static(ids(n)...), nil)
	require.NoError(b, err)
	var begun atomic.Int64
	all := make(chan *shard.Shard, 1)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	began := time.Now()
	go func() {
		done <- w.Run(ctx, func(_ context.Context, s *shard.Shard) error {
			if begun.Add(1) == int64(n) {
				all <- s
			}
			<-s.Stopping()
			return nil
		})
	}()
	one = <-all
	return one, time.Since(began), func() {
		cancel()
		require.NoError(b, <-done)
	}
}

func dynamo(b *testing.B) lease.Store {
	b.Helper()
	sdk := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
	_, err := sdk.CreateTable(b.Context(), dynamolock.CreateTableInput("locks"))
	require.NoError(b, err)
	s, err := dynamolock.New(sdk, "locks", nil)
	require.NoError(b, err)
	return s
}

// BenchmarkClaims is how long one worker takes to make and claim so many new shards.
func BenchmarkClaims(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("memory/%d", n), func(b *testing.B) {
			var sum time.Duration
			for b.Loop() {
				_, took, end := started(b, memlease.New(), n)
				sum += took
				end()
			}
			b.ReportMetric(float64(n*b.N)/sum.Seconds(), "claims/s")
		})
	}
}

// BenchmarkCheckpoint is a checkpoint beside the bare conditional write that it is made of.
func BenchmarkCheckpoint(b *testing.B) {
	for name, open := range map[string]func(b *testing.B) lease.Store{
		"memory":   func(*testing.B) lease.Store { return memlease.New() },
		"dynamodb": dynamo,
	} {
		b.Run(name+"/checkpoint", func(b *testing.B) {
			one, _, end := started(b, open(b), 10)
			defer end()
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				require.NoError(b, one.Checkpoint(b.Context(), fmt.Sprint(n)))
			}
		})
		b.Run(name+"/bare", func(b *testing.B) {
			r := open(b).(lease.Records)
			rec, err := r.Swap(b.Context(), lease.Record{Key: "k"}, nil, 0)
			require.NoError(b, err)
			value := []byte(`{"v":1,"token":3678270418946051,"slot":3,"worker":1796030482001,"at":"123456","seen":1796030482001,"known":true}`)
			b.ReportAllocs()
			for b.Loop() {
				rec, err = r.Swap(b.Context(), rec, value, 0)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkMemory is what one worker keeps in memory for ten thousand shards that it runs, goroutines and all.
func BenchmarkMemory(b *testing.B) {
	const n = 10_000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	for b.Loop() {
		store := memlease.New()
		_, _, end := started(b, store, n)
		with := heap()
		end()
		b.ReportMetric(float64(with-heap())/n, "bytes/shard")
		runtime.KeepAlive(store)
	}
}
