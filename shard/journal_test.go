package shard_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// journal is what the functions of all workers did.
type journal struct {
	mu    sync.Mutex
	spans map[string][]*span
	did   map[string]map[int]int // shard, record: how often
}

func newJournal() *journal {
	return &journal{spans: map[string][]*span{}, did: map[string]map[int]int{}}
}

// span is one call of a function.
type span struct {
	j          *journal
	host       *host
	id         string
	token      lease.Token
	begin, end time.Time
	records    int
}

func (j *journal) begin(h *host, s *shard.Shard) *span {
	sp := &span{j: j, host: h, id: s.ID(), token: s.Token(), begin: time.Now()}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.spans[s.ID()] = append(j.spans[s.ID()], sp)
	return sp
}

func (s *span) finish() {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	s.end = time.Now()
}

func (s *span) did(record int) {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	if s.j.did[s.id] == nil {
		s.j.did[s.id] = map[int]int{}
	}
	s.j.did[s.id][record]++
	s.records++
}

// check finds functions of one shard that overlap, tokens that do not grow, and records that were left out.
func (j *journal) check(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, spans := range j.spans {
		for i := 1; i < len(spans); i++ {
			last, next := spans[i-1], spans[i]
			require.Falsef(t, last.end.IsZero() || last.end.After(next.begin), "%s: %s until %v overlaps %s from %v", id,
				last.host.name, last.end, next.host.name, next.begin)
			if last.host != next.host {
				require.Greaterf(t, next.token, last.token, "%s: the token does not grow", id)
			}
			require.GreaterOrEqual(t, next.token, last.token)
		}
	}
	for id, did := range j.did {
		for n := 1; n <= len(did); n++ {
			require.NotZerof(t, did[n], "%s: record %d was left out", id, n)
		}
	}
}

// repeats counts records that were processed more than once, by shard.
func (j *journal) repeats() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string]int{}
	for id, did := range j.did {
		for _, n := range did {
			if n > 1 {
				out[id] += n - 1
			}
		}
	}
	return out
}

// running tells who works on which shard now.
func (j *journal) running() map[string]*host {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string]*host{}
	for id, spans := range j.spans {
		if last := spans[len(spans)-1]; last.end.IsZero() {
			out[id] = last.host
		}
	}
	return out
}

// loads are how many shards each of hosts works on.
func (j *journal) loads(hosts ...*host) []int {
	out := make([]int, len(hosts))
	for _, h := range j.running() {
		for i, of := range hosts {
			if h == of {
				out[i]++
			}
		}
	}
	return out
}

// moves counts calls on another worker than the one before, since at.
func (j *journal) moves(at time.Time) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, spans := range j.spans {
		for i := 1; i < len(spans); i++ {
			if spans[i].host != spans[i-1].host && spans[i].begin.After(at) {
				n++
			}
		}
	}
	return n
}

// times is how often a record was processed.
func (j *journal) times(id string, record int) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.did[id][record]
}
