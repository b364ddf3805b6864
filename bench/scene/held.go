package scene

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"
)

// referenceTTL is what figures for a minute are of: they are made of heartbeats, and cost in proportion to their number.
const (
	referenceTTL = 30 * time.Second
	heartbeats   = 2
)

// heldLocks: one process holds 10, 100 and 1,000 locks.
func heldLocks(ctx context.Context, w *World, s Subject) error {
	var wg sync.WaitGroup
	sizes := []int{10, 100, 1000}
	errs := make([]error, len(sizes))
	for i, n := range sizes {
		wg.Go(func() { errs[i] = holdMany(ctx, w, s, n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func holdMany(ctx context.Context, w *World, s Subject, n int) error {
	p, d, err := w.begin(ctx, "held-"+strconv.Itoa(n), s, referenceTTL)
	if err != nil {
		return err
	}
	defer p.close()
	if _, err := d.do(ctx, "open", "c"); err != nil {
		return err
	}
	if err := grabMany(ctx, d, n); err != nil {
		return err
	}
	beat := p.set.TTL / 3
	time.Sleep(beat) // the heartbeats have found their pace
	p.Take()
	cpu, _ := d.usage()
	began := time.Now()
	time.Sleep(heartbeats * beat)
	count, window := p.Take(), time.Since(began)
	used, resident := d.usage()
	scale := time.Minute.Seconds() / window.Seconds() * p.set.TTL.Seconds() / referenceTTL.Seconds()
	p.noteCount("per minute ", count, 1/scale)
	p.note("per minute cpu", "ms", milliseconds(used-cpu)*scale)
	p.note("memory", "MiB", resident)
	return nil
}

// grabMany acquires n locks, 16 at a time.
func grabMany(ctx context.Context, d *driver, n int) error {
	work := make(chan int)
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() {
			for lock := range work {
				if errs[i] == nil {
					_, errs[i] = d.grab(ctx, "c", "lock"+strconv.Itoa(lock))
				}
			}
		})
	}
	for lock := range n {
		work <- lock
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}
