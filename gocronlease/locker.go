package gocronlease

import (
	"context"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/cloudlease/cloudlease/lease"
)

// LockerOptions are a locker's options.
type LockerOptions struct {
	// Period makes each job run once per multiple of it, counted from the zero time in UTC: hosts whose clocks differ by less
	// than half of it agree on the nearest multiple. It is for jobs that start on such multiples, at least 1 s. Default 0:
	// runs of one job do not overlap, and that is all.
	Period time.Duration
	// Occurrence tells which scheduled instant of job a run at now, by this host's clock, belongs to, for other schedules than
	// a Period. Instants are told apart by whole seconds.
	Occurrence func(job string, now time.Time) time.Time
}

// Locker is a gocron.Locker: give it to gocron.WithDistributedLocker. The lock's name is the job's. It is safe for
// concurrent use.
type Locker struct {
	c          *lease.Client
	occurrence func(string, time.Time) time.Time

	mu   sync.Mutex
	held map[string]*lease.Lease
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker makes a locker of c. nil options are all defaults. It makes no request.
func NewLocker(c *lease.Client, o *LockerOptions) (*Locker, error) {
	if c == nil {
		return nil, lease.Invalid("configure", "", "the client is nil")
	}
	l := &Locker{c: c, held: map[string]*lease.Lease{}}
	switch {
	case o == nil:
	case o.Period != 0 && o.Occurrence != nil:
		return nil, lease.Invalid("configure", "", "period and occurrence exclude each other")
	case o.Period != 0 && o.Period < time.Second:
		return nil, lease.Invalid("configure", "", "period %v is below 1s, by which occurrences are told apart", o.Period)
	case o.Period != 0:
		l.occurrence = func(_ string, now time.Time) time.Time { return now.UTC().Round(o.Period) }
	default:
		l.occurrence = o.Occurrence
	}
	return l, nil
}

// Lock asks for the job's lock once. Any error makes gocron skip the run: lease.ErrHeld if it runs elsewhere,
// lease.ErrPassed if its occurrence has run, another if the store could not be asked.
func (k *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	var (
		l    *lease.Lease
		mark lease.Mark
		err  error
	)
	if k.occurrence == nil {
		l, err = k.c.TryAcquire(ctx, job)
	} else {
		mark.Occurrence = k.occurrence(job, k.c.Clock()().Wall).Unix()
		l, err = k.c.TryAcquireMark(ctx, job, mark)
	}
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[job] = l
	return &lock{k: k, l: l, mark: mark}, nil
}

// Lease is the lease under which this process runs job, for its token and for its end: gocron does not cancel a job whose
// lock is lost, so a long job watches Lease.Done.
func (k *Locker) Lease(job string) (*lease.Lease, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.held[job]
	return l, ok
}

type lock struct {
	k    *Locker
	l    *lease.Lease
	mark lease.Mark
}

// Unlock releases the lock and, in the same write, marks the occurrence as finished. It returns lease.ErrLost if the lock was
// lost while the job ran.
func (u *lock) Unlock(ctx context.Context) error {
	u.k.mu.Lock()
	if u.k.held[u.l.Name()] == u.l {
		delete(u.k.held, u.l.Name())
	}
	u.k.mu.Unlock()
	var f lease.Final
	if u.mark.Occurrence > 0 {
		marks := u.l.Marks()
		f.Marks = &lease.Marks{Started: marks.Started, Finished: max(marks.Finished, u.mark.Occurrence)}
	}
	return u.l.ReleaseWith(ctx, f)
}
