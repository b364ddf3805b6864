//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/check"
	"github.com/cloudlease/cloudlease/e2e/torture/history"
	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
	"github.com/cloudlease/cloudlease/e2e/torture/secret"
	"github.com/cloudlease/cloudlease/e2e/torture/service"
	"github.com/cloudlease/cloudlease/e2e/torture/worker"
)

// Options say what to torture.
type Options struct {
	Scene       string
	Store       string
	Seed        uint64
	For         time.Duration
	Workers     int
	Locks       int
	Occurrences int
	Dir         string // where the history goes
}

// campaign is everything that runs.
type campaign struct {
	Options
	service service.Service
	engine  *service.Engine
	guarded *service.Engine // has what the locks guard, where that is another engine
	port    int
	holders []*holder
	log     *history.Writer // of what the campaign itself does
	secrets secret.Book

	files    []io.Closer
	requests *json.Encoder
	began    time.Duration
	lasted   time.Duration

	restored []check.Stretch // when the engine was set back while workers were alive

	mu     sync.Mutex
	counts map[string]int // by kind of fault
	served int            // requests
}

// newCampaign starts the engine, the proxies and the workers. Close it, also after an error.
func newCampaign(ctx context.Context, o Options) (*campaign, error) {
	c := &campaign{Options: o, counts: map[string]int{}}
	s, err := service.Find(o.Store)
	if err != nil {
		return c, err
	}
	c.service = s
	service.TellCredentials(s, c.secrets.Add)
	events, err := c.create("campaign.jsonl")
	if err != nil {
		return c, err
	}
	requests, err := c.create("requests.jsonl")
	if err != nil {
		return c, err
	}
	c.log, c.requests = history.NewWriter(events, "campaign", 0), json.NewEncoder(requests)
	if c.engine, err = s.Start(ctx, c.dataDir(), 0); err != nil {
		return c, err
	}
	if err := s.Prepare(ctx, c.engine.URL); err != nil {
		return c, err
	}
	if o.Scene == sceneRestore {
		if err := c.guardElsewhere(ctx); err != nil {
			return c, err
		}
	}
	for n := range o.Workers {
		if err := c.addWorker(ctx, n); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *campaign) dataDir() string { return filepath.Join(c.Dir, "data") }

func (c *campaign) create(name string) (*os.File, error) {
	f, err := os.Create(filepath.Join(c.Dir, name))
	if err == nil {
		c.files = append(c.files, f)
	}
	return f, err
}

// addWorker starts the nth worker behind a proxy of its own.
func (c *campaign) addWorker(ctx context.Context, n int) error {
	at, err := url.Parse(c.engine.URL)
	if err != nil {
		return err
	}
	if c.port, err = strconv.Atoi(at.Port()); err != nil {
		return fmt.Errorf("the port of %s: %w", c.engine.URL, err)
	}
	name := fmt.Sprintf("w%d", n+1)
	seed := c.Seed*1000 + uint64(n) //nolint:gosec // a small number
	p, err := proxy.New(ctx, proxy.Options{
		Name: name, Target: at.Host, Service: c.service, Seed: seed, Log: c.logRequest, Secret: c.secrets.Add,
	})
	if err != nil {
		return err
	}
	h := &holder{
		proxy: p, dir: c.Dir, log: c.log,
		config: worker.Config{Store: c.Store, URL: p.URL() + at.Path, Name: name, Seed: seed, Locks: c.Locks},
	}
	if c.guarded != nil {
		h.config.Guarded = c.guarded.URL
	}
	c.holders = append(c.holders, h)
	return h.start()
}

// slowService is from when on an answer of the engine counts as an obstacle: the machine was too busy.
const slowService = 500 * time.Millisecond

func (c *campaign) logRequest(e proxy.Entry) {
	if e.Served > slowService {
		c.log.Add(history.Event{Kind: history.Obstacle, Worker: e.From, At: e.At, Until: e.At + e.Took, Fault: "slow engine"})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served++
	_ = c.requests.Encode(e) // it is for the reader of a violation
}

func (c *campaign) count(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[kind]++
}

// run lets the faults loose for the time of the campaign, then lets all workers come to an end without any.
func (c *campaign) run(ctx context.Context) error {
	c.began = history.Now()
	trouble, stop := context.WithTimeout(ctx, c.For)
	defer stop()
	err := c.unleash(trouble)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return c.finish(ctx)
}

// finish lets all workers come to an end, and looks at what is left.
func (c *campaign) finish(ctx context.Context) error {
	var ending sync.WaitGroup
	patience := time.Duration(c.Locks*c.Workers)*c.service.Bound() + time.Minute
	for _, h := range c.holders {
		ending.Go(func() {
			if err := h.finish(ctx, patience); err != nil {
				c.found("%v", err)
			}
		})
	}
	ending.Wait()
	c.lasted = history.Now() - c.began
	return errors.Join(context.Cause(ctx), c.checkLeftovers(ctx))
}

func (c *campaign) found(format string, args ...any) {
	c.log.Add(history.Event{Kind: history.Finding, Err: fmt.Sprintf(format, args...)})
}

// checkLeftovers looks at what the service still holds. A request that came late may hold a lock until its lease ends.
func (c *campaign) checkLeftovers(ctx context.Context) error {
	for deadline := time.Now().Add(c.service.Bound()); ; {
		left, err := c.service.Leftovers(ctx, c.engine.URL)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			c.found("the service still holds: %q", left)
			return nil
		}
		if !rest(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

// Close ends everything.
func (c *campaign) Close() error {
	var errs []error
	for _, h := range c.holders {
		if h.current() != nil {
			errs = append(errs, h.tidy())
		}
		for kind, n := range h.proxy.Stats().Faults {
			c.counts[string(kind)] += n
		}
		errs = append(errs, h.proxy.Close())
	}
	for _, e := range []*service.Engine{c.engine, c.guarded} {
		if e != nil {
			errs = append(errs, e.Kill())
		}
	}
	if c.log != nil {
		errs = append(errs, c.log.Err())
	}
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// check reads what all have written down.
func (c *campaign) check() (check.Report, []history.Event, error) {
	files, err := filepath.Glob(filepath.Join(c.Dir, "w*.jsonl"))
	if err != nil {
		return check.Report{}, nil, err
	}
	events, err := history.Read(append(files, filepath.Join(c.Dir, "campaign.jsonl"))...)
	if err != nil || len(events) == 0 {
		return check.Report{}, nil, errors.Join(err, errors.New("there is no history in "+c.Dir))
	}
	if c.began == 0 { // it is another campaign's
		c.began = slices.MinFunc(events, func(a, b history.Event) int { return int(a.At - b.At) }).At
	}
	events = since(c.began, events)
	return check.Check(events, c.rules()), events, nil
}

// leaks looks for secrets in everything that the campaign and its workers have written, and in what was printed.
func (c *campaign) leaks(printed string) ([]string, error) {
	var files []string
	for _, pattern := range []string{"*.jsonl", "*.log", "*.stderr"} {
		some, err := filepath.Glob(filepath.Join(c.Dir, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, some...)
	}
	return c.secrets.Check(c.service.SecretKinds(), files, map[string]string{"the report": printed})
}

// since makes instants of a history relative to its beginning, which is easier to read.
func since(began time.Duration, events []history.Event) []history.Event {
	for i := range events {
		for _, at := range []*time.Duration{&events[i].At, &events[i].Sent, &events[i].Until} {
			if *at != 0 {
				*at -= began
			}
		}
	}
	return events
}

// rules are the figures of this store. Whoever suffered from a fault may be in the pause after its last try.
func (c *campaign) rules() check.Rules {
	return check.Rules{
		Bound: c.service.Bound(), Settle: 3 * time.Second, Delay: c.longestDelay(), Late: time.Minute, Anew: c.service.Anew(),
		TTL: c.service.TTL(), Restored: c.restored, Beyond: c.Scene == sceneBeyond,
	}
}

// rest waits for d. It tells whether it waited to the end, because ctx did not end before.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
