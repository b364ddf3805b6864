package scene

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Never is the value of a time that did not come while it was waited for.
const Never = -1

// takeOver: three locks of one holder that is killed; (a) somebody waits already, (b) somebody comes after the lease has
// surely ended, (c) somebody tries once every two seconds, each time a process of its own (a client that was just made).
func takeOver(ctx context.Context, w *World, s Subject) error {
	p, d, err := w.begin(ctx, "takeover", s, 10*time.Second)
	if err != nil {
		return err
	}
	defer p.close()
	holder, err := p.holder(ctx)
	if err != nil {
		return err
	}
	for _, lock := range []string{"a", "b", "c"} {
		if _, err := holder.grab(ctx, "holder", lock); err != nil {
			return err
		}
	}
	p.Take()
	held := time.Now()
	t := &crash{seat: p, d: d, ended: held.Add(p.surelyEnded())}
	var errs [3]error
	var wg sync.WaitGroup
	waiting, cancel := context.WithDeadline(ctx, held.Add(t.limit()))
	defer cancel()
	if s.waits() {
		wg.Go(func() { errs[0] = t.waiting(waiting) })
	}
	time.Sleep(time.Second) // the waiter has looked
	holder.kill()
	t.killed = time.Now()
	wg.Go(func() { errs[1] = t.late(waiting) })
	wg.Go(func() { errs[2] = t.once(waiting) })
	wg.Wait()
	p.note("ttl", "s", p.set.TTL.Seconds())
	return errors.Join(errs[:]...)
}

// surelyEnded is when a lease of a dead holder has ended for two seconds, counted from its grant. Consul ends sessions up to two
// TTLs late and then has a lock-delay, of 15 s unless told otherwise.
func (p *seat) surelyEnded() time.Duration {
	if p.s.Store == Consul {
		return 2*p.set.TTL + 15*time.Second + 2*time.Second
	}
	return p.set.TTL + 3*time.Second
}

type crash struct {
	*seat
	d      *driver
	killed time.Time // set before anything but the waiter runs
	ended  time.Time
}

func (t *crash) limit() time.Duration {
	return t.surelyEnded() + 2*t.set.TTL + 5*time.Second
}

// took keeps a time, or that it did not come.
func (t *crash) took(metric string, since time.Time, a answer, err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		t.note(metric, "s", Never)
		return nil
	case err != nil:
		return err
	}
	t.note(metric, "s", a.at.Sub(since).Seconds())
	return nil
}

func (t *crash) waiting(ctx context.Context) error {
	a, err := t.d.must(ctx, "acquire", "waiter", "a")
	err = t.took("waiting time", t.killed, a, err)
	t.noteCount("waiting ", t.Of("a"), 1)
	return err
}

func (t *crash) late(ctx context.Context) error {
	time.Sleep(time.Until(t.ended))
	began := time.Now()
	a, err := t.d.grab(ctx, "late", "b")
	err = t.took("late time", began, a, err)
	t.noteCount("late ", t.Of("b"), 1)
	return err
}

func (t *crash) once(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		a, err := t.d.do(ctx, "try", fmt.Sprintf("once%d", n), "c")
		if err != nil || a.ok {
			err = t.took("once time", t.killed, a, err)
			t.noteCount("once ", t.Of("c"), 1)
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.note("once time", "s", Never)
			t.noteCount("once ", t.Of("c"), 1)
			return nil
		}
	}
}
