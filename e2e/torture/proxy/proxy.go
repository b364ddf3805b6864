//go:build unix

// Package proxy stands between one client and an HTTP service, does to requests what networks and services do, and writes
// every request down.
//
// Decisions are made by a generator with a seed, one for each matching request in the order of their arrival.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
)

// Service is what a proxy knows of the service behind it.
type Service interface {
	// Classify names a request.
	Classify(r *http.Request, body []byte) Request
	// Answer is what the service says when it fails (Fail) or has too much to do (Throttle).
	Answer(kind Kind, r *http.Request) Answer
	// Secrets tells of everything that m has and no log may show, by kind.
	Secrets(m Message, found func(kind, secret string))
}

// Options describe a proxy.
type Options struct {
	Name    string // of the client, for the log
	Target  string // where the service listens, host:port
	Service Service
	Seed    uint64
	Log     func(Entry) // called for every request, also concurrently
	// Secret is called for everything in requests and answers that no log may show, also concurrently; nil: nobody asks.
	Secret func(kind, secret string)
}

// Stats count requests.
type Stats struct {
	Requests     int
	Faults       map[Kind]int
	Inconsistent int // reads that would have accepted a stale answer
}

// lateEffect bounds a request to the service, so that what is held or cut off ends.
const lateEffect = 20 * time.Second

// Proxy is a running proxy. Its methods are safe for concurrent use. Close it.
type Proxy struct {
	o      Options
	server *http.Server
	url    string
	client *http.Transport
	served chan error
	closed chan struct{}
	work   sync.WaitGroup // requests under way, second deliveries

	mu    sync.Mutex
	rand  *rand.Rand
	rules []*Active
	stats Stats
	older map[string]*copied // by key, answers to reads
}

// New starts a proxy on a free port of the loopback address.
func New(ctx context.Context, o Options) (*Proxy, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &Proxy{
		o: o, url: "http://" + l.Addr().String(), served: make(chan error, 1), closed: make(chan struct{}),
		client: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext},
		rand:   rand.New(rand.NewPCG(o.Seed, 0)), //nolint:gosec // it shall be repeatable
		stats:  Stats{Faults: map[Kind]int{}}, older: map[string]*copied{},
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { p.served <- p.server.Serve(l) }()
	return p, nil
}

// URL is where the proxy listens.
func (p *Proxy) URL() string { return p.url }

// Add puts a rule in force. Where several match one request, the first one added that the dice do not spare hits it.
func (p *Proxy) Add(r Rule) *Active {
	a := &Active{Rule: r, p: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, a)
	return a
}

func (p *Proxy) remove(a *Active) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = slices.DeleteFunc(p.rules, func(b *Active) bool { return a == b })
}

// Stats are the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Faults = maps.Clone(s.Faults)
	return s
}

// Close ends the proxy and everything it holds.
func (p *Proxy) Close() error {
	p.mu.Lock()
	close(p.closed)
	p.mu.Unlock()
	err := p.server.Close()
	if serveErr := <-p.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	p.work.Wait()
	p.client.CloseIdleConnections()
	return err
}

// hit decides which rule hits a request; none is the zero Rule.
func (p *Proxy) hit(req Request) Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Requests++
	if req.Read && !req.Consistent {
		p.stats.Inconsistent++
	}
	for _, a := range p.rules {
		if !a.matches(req) || a.Chance != 0 && p.rand.Float64() >= a.Chance {
			continue
		}
		if a.Kind == StaleRead && p.older[req.Key] == nil {
			continue // there is nothing older yet
		}
		p.countLocked(a)
		return a.Rule
	}
	return Rule{}
}

func (p *Proxy) countLocked(a *Active) {
	a.hits.Add(1)
	p.stats.Faults[a.Kind]++
}

// cut tells whether a partition swallows answers now, and counts the one that it swallows.
func (p *Proxy) cut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.rules {
		if a.Kind == Partition {
			p.countLocked(a)
			return true
		}
	}
	return false
}

// ServeHTTP passes one request through the faults.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.work.Done()
	e := Entry{At: history.Now(), From: p.o.Name}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		e.Err = "the request broke off"
		p.o.Log(e)
		panic(http.ErrAbortHandler)
	}
	p.learn(Message{r.URL, r.Header, body})
	req := p.o.Service.Classify(r, body)
	rule := p.hit(req)
	e.Op, e.Key, e.Fault = req.Op, cmp.Or(req.Shown, req.Key), rule.Kind
	defer func() {
		e.Took = history.Now() - e.At
		p.o.Log(e)
	}()
	switch rule.Kind {
	case Fail, Throttle:
		p.o.Service.Answer(rule.Kind, r).write(w)
		return
	case BlackHole, Partition:
		p.hold(r.Context(), 0)
		sever(w)
		return
	case Reset:
		sever(w)
		return
	case StaleRead:
		p.stale(req).write(w)
		return
	case DelayBefore:
		p.hold(context.WithoutCancel(r.Context()), rule.Delay)
	default: // it concerns the answer
	}
	answer, err := p.forward(r, body, req, &e)
	if err != nil {
		e.Err = err.Error()
		sever(w)
		return
	}
	p.learn(Message{r.URL, answer.header, answer.body})
	p.deliver(w, r, body, req, rule, answer, &e)
}

// stale is an older answer, told now.
func (p *Proxy) stale(req Request) *copied {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.older[req.Key]
	old.header = old.header.Clone()
	old.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	return &old
}

// staleness is how much older a stale answer is than the one before it, at most.
const staleness = 5 * time.Second

// remember keeps an answer for later stale ones.
func (p *Proxy) remember(key string, answer *copied) {
	now := history.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.older[key]; old == nil || now-old.at > staleness {
		answer.at = now
		p.older[key] = answer
	}
}

// enter counts a request under way, so that Close waits for it.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return false
	default:
		p.work.Add(1)
		return true
	}
}

// deliver brings the service's answer back.
func (p *Proxy) deliver(w http.ResponseWriter, r *http.Request, body []byte, req Request, rule Rule, answer *copied, e *Entry) {
	e.Status = answer.status
	switch rule.Kind {
	case Duplicate:
		p.again(r, body, rule.Delay)
	case DelayAfter:
		p.hold(r.Context(), rule.Delay)
	case DropAnswer:
		sever(w)
		return
	case WrongDate:
		answer.header.Set("Date", time.Now().Add(rule.Shift).UTC().Format(http.TimeFormat))
	default: // it concerned the request
	}
	if p.cut() {
		e.Fault = Partition
		p.hold(r.Context(), 0)
		sever(w)
		return
	}
	if req.Read && !req.Consistent && answer.status == http.StatusOK {
		p.remember(req.Key, answer)
	}
	answer.write(w)
}

// hold waits for d (0: for ever), until ctx ends, or until the proxy is closed.
func (p *Proxy) hold(ctx context.Context, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
	case <-ctx.Done():
	case <-p.closed:
	}
}
