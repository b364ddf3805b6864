package dynamolock

import (
	"crypto/rand"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/internal/servertime"
	"github.com/cloudlease/cloudlease/lease"
)

// dead tells whether the lease of the record is certainly over: the service's clock has passed its end even if this host's
// idea of it came from a front end that is ahead. A record whose end no client of this library can have written is watched
// instead: unchanged for its TTL and a tenth, by the slower clock of this host.
func (s *Store) dead(sight sighting, now lease.Reading) bool {
	rec := sight.rec
	if rec.absent() || rec.free() {
		return false
	}
	earliest, latest, ok := s.time.Interval(now)
	if !ok {
		return false
	}
	if s.plausible(rec, latest) {
		return earliest.After(time.UnixMilli(rec.expires).Add(servertime.Skew))
	}
	return now.Slow(sight.since) > watchFor(rec)
}

// plausible tells whether rec's end can have been written by the rules.
func (s *Store) plausible(rec record, latest time.Time) bool {
	ttl := time.Duration(rec.ttl) * time.Millisecond
	return !time.UnixMilli(rec.expires).After(latest.Add(ttl + servertime.Skew))
}

func watchFor(rec record) time.Duration {
	ttl := time.Duration(rec.ttl) * time.Millisecond
	return ttl + ttl/10
}

// untilDead is how long it takes, if the record is not renewed, until dead says so.
func (s *Store) untilDead(sight sighting, now lease.Reading) time.Duration {
	earliest, latest, ok := s.time.Interval(now)
	if !ok {
		return 0
	}
	if s.plausible(sight.rec, latest) {
		return time.UnixMilli(sight.rec.expires).Add(servertime.Skew).Sub(earliest) + time.Millisecond
	}
	return watchFor(sight.rec) - now.Slow(sight.since) + time.Millisecond
}

// newNonce is new on every write, so that a record that was seen is known again.
func newNonce() string { return strings.ToLower(rand.Text()) }
