package shard

import (
	"errors"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Options are a worker's options. The zero value of every field is its documented default; a nil *Options is all defaults.
// Workers of one group should have the same options, MaxShards aside.
type Options struct {
	// Interval is the pause between a worker's looks at its group, jittered by 10 %. Default: the client's heartbeat, a
	// third of the TTL. Below half of the TTL.
	Interval time.Duration

	// MaxShards is how many shards this worker runs at most. Default 0: no limit.
	MaxShards int

	// Grace is how long a function that is asked to stop (Shard.Stopping) may go on before its context ends. Default: a
	// third of the TTL.
	Grace time.Duration

	// StopLimit is how long after its context has ended a function may take to return. After that the shard moves on
	// without it. Default: a third of the TTL.
	StopLimit time.Duration

	// Progress gives a shard up, in order, if its function has not called Checkpoint for this long. Default 0: not watched.
	Progress time.Duration

	// MaxTries is how many times in a row a shard is claimed without a checkpoint, its owner dying each time, or its
	// function fails without one, before the shard is parked. Default 5; negative: never.
	MaxTries int

	// SourceInterval is the pause between listings of the source; only one worker of a group lists it. It is also listed
	// whenever a shard was finished. Default 1 min, not below Interval.
	SourceInterval time.Duration
}

const (
	defaultTries  = 5
	defaultSource = time.Minute
)

func (o Options) withDefaults(c lease.Options) Options {
	if o.Interval == 0 {
		o.Interval = c.Heartbeat
	}
	if o.Grace == 0 {
		o.Grace = c.TTL / 3
	}
	if o.StopLimit == 0 {
		o.StopLimit = c.TTL / 3
	}
	if o.MaxTries == 0 {
		o.MaxTries = defaultTries
	}
	if o.SourceInterval == 0 {
		o.SourceInterval = max(defaultSource, o.Interval)
	}
	return o
}

// check reports every fault at once. Defaults are filled in.
func (o Options) check(group string, c lease.Options) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, lease.Invalid("configure", group, format, args...))
	}
	if o.Interval < 0 || o.Interval >= (c.TTL+1)/2 {
		fault("interval %v is not below half of the TTL %v: a worker that misses one look would lose its shards", o.Interval, c.TTL)
	}
	if o.MaxShards < 0 || o.MaxShards > maxLimit {
		fault("the limit of %d shards is not 0 to %d", o.MaxShards, maxLimit)
	}
	if o.Grace < 0 {
		fault("grace %v is negative", o.Grace)
	}
	if o.StopLimit < 0 {
		fault("stop limit %v is negative", o.StopLimit)
	}
	if o.Progress < 0 || o.Progress > 0 && o.Progress < o.Interval {
		fault("the progress limit %v is below the interval %v", o.Progress, o.Interval)
	}
	if o.SourceInterval < o.Interval {
		fault("the source's interval %v is below the interval %v", o.SourceInterval, o.Interval)
	}
	return errors.Join(faults...)
}
