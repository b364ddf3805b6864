package gocronlease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/cloudlease/cloudlease/lease"
)

// ErrNotLeader is what IsLeader answers on the machines that do not lead.
var ErrNotLeader = errors.New("not the leader")

// Elector is a gocron.Elector: give it to gocron.WithDistributedElector. It stands for leader in the background from NewElector
// to Close, stands again after a loss, and leads as long as its lease is valid. It is safe for concurrent use.
type Elector struct {
	c    *lease.Client
	name string
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	l   *lease.Lease // of the last term
	err error        // of the last try
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector stands for leader under name. Its requests are those of one waiter, or of one held lease.
func NewElector(c *lease.Client, name string) (*Elector, error) {
	if c == nil {
		return nil, lease.Invalid("configure", name, "the client is nil")
	}
	if err := lease.CheckName(name); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	e := &Elector{c: c, name: name, stop: stop, done: make(chan struct{})}
	go e.stand(ctx)
	return e, nil
}

// retryPause is the pause after an error that waiting for the lock does not cover.
const retryPause = time.Second

func (e *Elector) stand(ctx context.Context) {
	defer close(e.done)
	for ctx.Err() == nil {
		l, err := e.c.Acquire(ctx, e.name)
		e.set(l, err)
		if err != nil {
			select {
			case <-time.After(retryPause):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-l.Done():
		case <-ctx.Done():
		}
	}
}

func (e *Elector) set(l *lease.Lease, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err = err; err == nil {
		e.l = l
	}
}

// IsLeader is nil if this process leads now. It reads the clocks and makes no request. The error is ErrNotLeader, joined with
// the last error of the store if there was one.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.l != nil && e.l.Err() == nil {
		return nil
	}
	return errors.Join(ErrNotLeader, e.err)
}

// Lease is the lease of this term, for its token; false if this process does not lead.
func (e *Elector) Lease() (*lease.Lease, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.l, e.l != nil && e.l.Err() == nil
}

// Close stands down: the next leader need not wait for the TTL. It leaves nothing behind that it began, as far as ctx lets it
// wait. It returns lease.ErrLost if the last term was lost.
func (e *Elector) Close(ctx context.Context) error {
	e.stop()
	<-e.done
	e.mu.Lock()
	l := e.l
	e.mu.Unlock()
	if l == nil {
		return e.c.Settle(ctx)
	}
	return errors.Join(l.Release(ctx), e.c.Settle(ctx))
}
