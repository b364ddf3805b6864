package scene

import (
	"context"
	"strconv"
	"time"
)

// bench TTL: long enough that no heartbeat comes in between.
const calm = 60 * time.Second

// rounds are how often a cheap thing is measured.
const rounds = 100

// begin is a place with one driver.
func (w *World) begin(ctx context.Context, scenario string, s Subject, ttl time.Duration) (*seat, *driver, error) {
	p, err := w.seat(ctx, scenario, s, ttl)
	if err != nil {
		return nil, nil, err
	}
	d, err := p.driver(ctx)
	if err != nil {
		p.close()
		return nil, nil, err
	}
	return p, d, nil
}

// uncontended: first with a client that has just been made, on a lock that was there before; then warm.
func uncontended(ctx context.Context, w *World, s Subject) error {
	p, d, err := w.begin(ctx, "uncontended", s, calm)
	if err != nil {
		return err
	}
	defer p.close()
	cycle := func(client string) (acquired, whole time.Duration, err error) {
		a, err := d.grab(ctx, client, "x")
		if err != nil {
			return 0, 0, err
		}
		r, err := d.must(ctx, "release", client, "x")
		return a.took, a.took + r.took, err
	}
	for _, client := range []string{"first", "other", "first"} {
		if _, _, err := cycle(client); err != nil {
			return err
		}
	}
	p.Take()
	if _, err := d.grab(ctx, "fresh", "x"); err != nil {
		return err
	}
	p.noteCount("cold acquire ", p.Take(), 1)
	if _, err := d.must(ctx, "release", "fresh", "x"); err != nil {
		return err
	}
	p.noteCount("release ", p.Take(), 1)
	cpu, _ := d.usage()
	var acquires, cycles []time.Duration
	for range rounds {
		acquired, whole, err := cycle("first")
		if err != nil {
			return err
		}
		acquires, cycles = append(acquires, acquired), append(cycles, whole)
	}
	used, _ := d.usage()
	p.noteCount("", p.Take(), rounds)
	p.note("cpu", "ms", milliseconds(used-cpu)/rounds)
	p.noteTimes("acquire ", acquires)
	p.noteTimes("", cycles)
	return nil
}

func renew(ctx context.Context, w *World, s Subject) error {
	p, d, err := w.begin(ctx, "renew", s, calm)
	if err != nil {
		return err
	}
	defer p.close()
	if _, err := d.grab(ctx, "c", "x"); err != nil {
		return err
	}
	p.Take()
	const n = rounds / 5
	var took []time.Duration
	for range n {
		a, err := d.must(ctx, "renew", "c", "x")
		if err != nil {
			return err
		}
		took = append(took, a.took)
	}
	p.noteCount("", p.Take(), n)
	p.noteTimes("", took)
	return nil
}

// failFast: a library that cannot fail fast waits out a lease, which is why there is a limit.
func failFast(ctx context.Context, w *World, s Subject) error {
	p, d, err := w.begin(ctx, "failfast", s, 10*time.Second)
	if err != nil {
		return err
	}
	defer p.close()
	holder, err := p.holder(ctx)
	if err != nil {
		return err
	}
	if _, err := holder.grab(ctx, "holder", "x"); err != nil {
		return err
	}
	if _, err := d.do(ctx, "open", "c"); err != nil {
		return err
	}
	p.Take()
	a, err := d.do(ctx, "try", "c", "x")
	if err != nil {
		return err
	}
	p.noteCount("cold ", p.Take(), 1)
	p.note("cold time", "ms", milliseconds(a.took))
	limit := time.Now().Add(2 * time.Second) // before a heartbeat of the holder
	var took []time.Duration
	for len(took) < rounds/5 && time.Now().Before(limit) {
		if a, err = d.do(ctx, "try", "c", "x"); err != nil {
			return err
		}
		if a.ok {
			return nil // it was not held any more: the first try has waited for that
		}
		took = append(took, a.took)
	}
	if len(took) == 0 {
		return nil
	}
	p.noteCount("", p.Take(), float64(len(took)))
	p.noteTimes("", took)
	return nil
}

// deliveries: five processes are told the same occurrence, one after the other, as by a scheduler that delivers at least once; then
// one process runs the next occurrences.
func deliveries(ctx context.Context, w *World, s Subject) error {
	p, d, err := w.begin(ctx, "singleton", s, calm)
	if err != nil {
		return err
	}
	defer p.close()
	const (
		copies = 5
		runs   = 20
	)
	at := time.Now().Truncate(time.Minute).Add(-runs * time.Minute)
	if _, err := d.must(ctx, "deliver", "before", "job", strconv.FormatInt(at.Unix(), 10)); err != nil {
		return err
	}
	if s.Name == "shedlock" { // it keeps the lock, whatever the occurrence; a job of its own is as good
		return p.shedDeliveries(ctx, d, copies)
	}
	p.Take()
	ran := 0.0
	at = at.Add(time.Minute)
	for i := range copies {
		a, err := d.do(ctx, "deliver", "copy"+strconv.Itoa(i), "job", strconv.FormatInt(at.Unix(), 10))
		if err != nil {
			return err
		}
		if a.ok {
			ran++
		}
	}
	p.noteCount("five deliveries ", p.Take(), 1)
	p.note("five deliveries runs", "runs", ran)
	for range runs - 2 {
		at = at.Add(time.Minute)
		if _, err := d.must(ctx, "deliver", "before", "job", strconv.FormatInt(at.Unix(), 10)); err != nil {
			return err
		}
	}
	p.noteCount("", p.Take(), runs-2)
	return nil
}

func (p *seat) shedDeliveries(ctx context.Context, d *driver, copies int) error {
	p.Take()
	ran := 0.0
	for i := range copies {
		a, err := d.do(ctx, "deliver", "copy"+strconv.Itoa(i), "other", "0")
		if err != nil {
			return err
		}
		if a.ok {
			ran++
		}
	}
	p.noteCount("five deliveries ", p.Take(), 1)
	p.note("five deliveries runs", "runs", ran)
	for i := range rounds / 5 {
		if _, err := d.must(ctx, "deliver", "before", "job"+strconv.Itoa(i), "0"); err != nil {
			return err
		}
	}
	p.noteCount("", p.Take(), rounds/5)
	return nil
}
