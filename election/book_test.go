package election_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/lease"
)

// book is what all candidates did: their terms in the order of their beginnings.
type book struct {
	mu    sync.Mutex
	terms []*served
}

type served struct {
	who         string
	token       lease.Token
	start, stop time.Time // of lead
	over        time.Time // when its context was seen to have ended
}

func (b *book) keep(who string, lead election.Lead) election.Lead {
	return func(ctx context.Context, l *lease.Lease) error {
		s := &served{who: who, token: l.Token(), start: time.Now()}
		b.mu.Lock()
		b.terms = append(b.terms, s)
		b.mu.Unlock()
		noted := make(chan struct{})
		defer context.AfterFunc(ctx, func() {
			defer close(noted)
			b.mu.Lock()
			defer b.mu.Unlock()
			s.over = time.Now()
		})()
		defer func() {
			if ctx.Err() != nil {
				<-noted
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			s.stop = time.Now()
			if s.over.IsZero() {
				s.over = s.stop
			}
		}()
		return lead(ctx, l)
	}
}

// all are the terms so far.
func (b *book) all() []served {
	b.mu.Lock()
	defer b.mu.Unlock()
	var terms []served
	for _, s := range b.terms {
		terms = append(terms, *s)
	}
	return terms
}

// check finds terms whose contexts are alive at one instant, tokens that do not grow, and starts of one candidate that are not
// preceded by a stop.
func (b *book) check(t *testing.T) {
	t.Helper()
	terms := b.all()
	stops := map[string]time.Time{}
	for i, s := range terms {
		require.Falsef(t, s.stop.IsZero(), "%s was started and never stopped: %+v", s.who, s)
		if i > 0 {
			last := terms[i-1]
			require.Greaterf(t, s.token, last.token, "the token of %+v does not grow after %+v", s, last)
			require.Falsef(t, s.start.Before(last.over), "%+v began while the context of %+v was alive", s, last)
		}
		require.Falsef(t, s.start.Before(stops[s.who]), "%s was started again before it had stopped: %+v", s.who, s)
		stops[s.who] = s.stop
	}
}
