package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Shard is a shard that this worker owns. Its methods are safe for concurrent use.
type Shard struct {
	s     *session
	id    string
	token lease.Token
	since lease.Reading // when it was claimed

	stopping chan struct{}      // closed when the function is asked to stop
	done     chan struct{}      // closed when the function has returned and is not called again
	gone     chan struct{}      // closed when this worker has nothing to do with the shard any more
	turn     chan struct{}      // holds the one turn to change rec and row
	cancel   context.CancelFunc // frees the context below
	end      context.CancelCauseFunc

	rec lease.Record // as last written or read
	row row

	mu       sync.Mutex
	cause    error // why it is not this worker's any more; nil while it is
	finished bool
	once     sync.Once
	position string
	progress lease.Reading // of the last checkpoint
	asking   bool
}

// ID is the shard's id in its source.
func (sh *Shard) ID() string { return sh.id }

// Token is the shard's fencing token: higher than that of every owner before, whoever it was and whatever became of the
// shard's record. Send it with every write that the shard's order protects.
func (sh *Shard) Token() lease.Token { return sh.token }

// Holder is who owns the shard, unique to this worker. A fence takes it beside the token.
func (sh *Shard) Holder() string { return sh.s.c.Holder() }

// Position is the last checkpoint: where to go on. It is empty if there never was one.
func (sh *Shard) Position() string {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.position
}

// Stopping is closed when the function is asked to stop, because the shard moves or the worker leaves: finish the batch, store
// a checkpoint, return. The function's context ends Options.Grace later. It is closed, too, when the shard is lost; the
// context has ended before then.
func (sh *Shard) Stopping() <-chan struct{} { return sh.stopping }

// Err is nil while the shard is this worker's, then lease.ErrLost or lease.ErrReleased, wrapped with the reason. It reads the
// clocks, so it is right even when this process has just woken from a pause. It makes no request.
func (sh *Shard) Err() error {
	sh.mu.Lock()
	cause := sh.cause
	sh.mu.Unlock()
	if cause == nil {
		cause = sh.s.check()
	}
	return cause
}

// Checkpoint stores position, at most MaxPosition bytes of UTF-8, as where the shard's next owner goes on. It is refused with
// lease.ErrLost if the shard is not this worker's any more, whatever this process knows of it; then nothing was stored.
// lease.ErrInDoubt means that it may have been, as when the lease ends meanwhile.
//
// Checkpoint blocks until it is stored or refused, or the lease ends. It does not inherit ctx's cancellation, so that a function
// whose context has ended can store what it has done, for Options.StopLimit. It costs one write.
func (sh *Shard) Checkpoint(ctx context.Context, position string) error {
	if err := checkPosition(position); err != nil {
		return lease.Invalid("checkpoint", sh.key(), "%w", err)
	}
	err := sh.change(ctx, "checkpoint", func(r row) row {
		r.At, r.Tries, r.Seen = position, 0, sh.s.now()
		return r
	})
	if err == nil {
		sh.mu.Lock()
		sh.position, sh.progress = position, sh.s.c.Clock()()
		sh.mu.Unlock()
	}
	return err
}

// Finish stores that the shard has come to its end for good: nobody claims it again, and its children can begin. Checkpoint
// first what is to be kept. The function should return then. Blocking, errors and cancellation are Checkpoint's; it costs two
// writes.
func (sh *Shard) Finish(ctx context.Context) error {
	err := sh.change(ctx, "finish", func(r row) row {
		r = r.free()
		r.End, r.Tries, r.Seen = true, 0, sh.s.now()
		return r
	})
	if err != nil {
		return err
	}
	sh.mu.Lock()
	sh.finished = true
	sh.cause = sh.over("finish", lease.ErrReleased, errors.New("it is finished"))
	sh.mu.Unlock()
	sh.s.tell(Finished, sh.key(), sh.token, 0, nil)
	sh.s.noteEnd(ctx, sh.id)
	return nil
}

func (sh *Shard) key() string { return sh.s.rowKey(sh.id) }

func (sh *Shard) over(op string, class, why error) error {
	return &lease.Error{
		Op: op, Name: sh.key(), Class: class, Err: why,
		Hint: fmt.Sprintf("stop; a fence refuses writes with token %d once the next owner has written", sh.token),
	}
}

// change stores what f makes of the row, on the condition that the shard is still ours.
func (sh *Shard) change(ctx context.Context, op string, f func(row) row) error {
	held, cancel := sh.s.lease.Context(context.WithoutCancel(ctx))
	defer cancel()
	select {
	case <-sh.turn:
	case <-held.Done():
		return cmp.Or(sh.Err(), context.Cause(held))
	}
	defer func() { sh.turn <- struct{}{} }()
	for {
		if err := sh.Err(); err != nil {
			return err
		}
		next := f(sh.row)
		rec, err := sh.s.swapRow(held, sh.rec, next)
		if err == nil {
			sh.rec, sh.row = rec, next
			return nil
		}
		if !errors.Is(err, lease.ErrConflict) {
			return sh.refused(op, err)
		}
		if err := sh.reload(held, op); err != nil {
			return err
		}
	}
}

// refused is the error of a write that was not stored, or may not have been.
func (sh *Shard) refused(op string, err error) error {
	lost := sh.Err()
	switch {
	case lost == nil:
		return err
	case errors.Is(err, lease.ErrInDoubt):
		return &lease.Error{
			Op: op, Name: sh.key(), Class: lease.ErrInDoubt, Err: errors.New("the lease ended before the write was answered"),
			Hint: "the next owner's position tells whether it was stored",
		}
	}
	return lost
}

// reload reads the row after somebody else has changed it. An operator may have; another owner ends this one.
func (sh *Shard) reload(ctx context.Context, op string) error {
	have, err := sh.s.loadRow(ctx, sh.id)
	if err != nil {
		return sh.refused(op, err)
	}
	if have.row.Token == sh.token && have.row.by(sh.s.slot, sh.s.lease.Token()) {
		sh.rec, sh.row = have.rec, have.row
		return nil
	}
	why := errors.New("it has another owner")
	if have.rec.Version == 0 || have.row.Parked != nil && have.row.Parked.Lost {
		why = errors.New("its record was deleted")
		sh.s.keepPosition(sh.id, sh.row.At)
	}
	lost := sh.over(op, lease.ErrLost, why)
	sh.s.drop(sh)
	sh.lose(lost)
	return lost
}

// lose ends the shard for this worker: it is not its any more.
func (sh *Shard) lose(why error) {
	sh.mu.Lock()
	if sh.cause != nil {
		sh.mu.Unlock()
		return
	}
	sh.cause = why
	sh.mu.Unlock()
	sh.end(why)
	sh.signal()
	sh.s.tell(ShardLost, sh.key(), sh.token, sh.s.c.Clock()().Fast(sh.since), why)
}

// signal closes stopping.
func (sh *Shard) signal() { sh.once.Do(func() { close(sh.stopping) }) }

func (sh *Shard) asked() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.asking
}

func (sh *Shard) idle(now lease.Reading) time.Duration {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return now.Slow(sh.progress)
}
