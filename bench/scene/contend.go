package scene

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/bench/meter"
	"github.com/cloudlease/cloudlease/bench/stat"
)

// hold is how long a contender keeps the lock.
const hold = 100 * time.Millisecond

// settle is how long contenders come to terms with each other before anything is counted: a crowd that has just come knows nothing of
// itself, and its first looks are no measure of what it costs.
const settle = 10 * time.Second

// fewest are the hand-overs below which nothing can be said of them.
const fewest = 5

// contention is a crowd on one lock.
type contention struct {
	d        *driver
	deadline time.Time

	mu     sync.Mutex
	turn   chan struct{} // closed at the next grant
	freed  time.Time     // when the last release was sent
	gaps   []time.Duration
	grants []int // by contender
	err    error
}

// contend: n clients want one lock over and over. Who has had it asks again when another has got it, so that every hand-over goes to
// one that was waiting; otherwise who releases it and asks again at once would nearly always win. The clients of one driver
// share a process, but nothing that a process of their own would not have either, the SDK's connections aside.
func contend(ctx context.Context, w *World, s Subject, n int) error {
	p, d, err := w.begin(ctx, "contend-"+strconv.Itoa(n), s, 30*time.Second)
	if err != nil {
		return err
	}
	defer p.close()
	for i := range n {
		if _, err := d.do(ctx, "open", "c"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	window := map[int]time.Duration{2: 10 * time.Second, 20: 15 * time.Second}[n]
	if window == 0 {
		window = 20 * time.Second
	}
	c := &contention{d: d, deadline: time.Now().Add(settle + window), turn: make(chan struct{}), grants: make([]int, n)}
	over, cancel := context.WithDeadline(ctx, c.deadline)
	defer cancel()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { c.contender(over, i) })
	}
	time.Sleep(settle)
	p.Take()
	c.forget()
	cpu, _ := d.usage()
	<-over.Done()
	count := p.Take()
	used, _ := d.usage()
	wg.Wait()
	if c.err != nil {
		return c.err
	}
	c.report(p, count, used-cpu)
	return nil
}

func (c *contention) contender(ctx context.Context, i int) {
	name := "c" + strconv.Itoa(i)
	for ctx.Err() == nil {
		a, err := c.d.must(ctx, "acquire", name, "x")
		if err != nil {
			c.failed(ctx, err)
			return
		}
		c.granted(i, a.at)
		time.Sleep(hold)
		c.mu.Lock()
		c.freed = time.Now()
		next := c.turn
		c.mu.Unlock()
		if _, err := c.d.must(ctx, "release", name, "x"); err != nil {
			c.failed(ctx, err)
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
}

// failed keeps the first failure that is not the end of the window.
func (c *contention) failed(ctx context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil && c.err == nil {
		c.err = err
	}
}

// forget what was measured so far.
func (c *contention) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaps = nil
	clear(c.grants)
}

func (c *contention) granted(i int, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.freed.IsZero() {
		c.gaps = append(c.gaps, at.Sub(c.freed))
	}
	c.grants[i]++
	close(c.turn)
	c.turn = make(chan struct{})
}

func (c *contention) report(p *seat, count meter.Count, cpu time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.note("hand-overs", "hand-overs", float64(len(c.gaps)))
	if len(c.gaps) < fewest { // its waiters wait for longer than the window
		p.note("hand-over median", "ms", Never)
		return
	}
	overs := float64(len(c.gaps))
	p.noteCount("per hand-over ", count, overs)
	p.note("per hand-over cpu", "ms", milliseconds(cpu)/overs)
	p.noteTimes("hand-over ", c.gaps)
	p.note("peak", "requests", float64(count.Peak))
	p.note("fairness", "of 1", stat.Fairness(c.grants))
}
