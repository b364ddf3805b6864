// Package meter counts what a client asks of a service: a reverse proxy that any client in any language goes through. It changes
// nothing on the way.
//
//	DynamoDB   requests by operation, and the read and write units that the service would bill
//	Azure      requests by operation, and their billing classes
//	Consul     requests by operation
//
// The engines behind it do not bill; the units are computed by the services' published rules from what passes by.
package meter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Call is a request and its answer, as a Rule sees them.
type Call struct {
	Request *http.Request
	Body    []byte
	Status  int
	Answer  []byte
}

// Cost is what one request is and costs.
type Cost struct {
	Op     string  // such as UpdateItem, "lease acquire" or "txn lock"
	Key    string  // what it is about; empty where it does not say
	Reads  float64 // DynamoDB read units
	Writes float64 // DynamoDB write units
	Class  Class   // Azure billing class
}

// Class is a billing class of Azure's blob operations.
type Class string

// The classes, as Azure's page "Map each REST operation to a price" has them for a standard general-purpose v2 account.
const (
	ReadClass  Class = "read"
	WriteClass Class = "write"
	ListClass  Class = "list"
	OtherClass Class = "other"
	FreeClass  Class = "free"
)

// Rule tells what a call costs. It is called for one call at a time.
type Rule interface {
	Cost(c Call) Cost
}

// Count is what was counted.
type Count struct {
	Requests int
	Refused  int // answers of 400 and above: failed conditions, held locks
	Ops      map[string]int
	Classes  map[Class]int
	Reads    float64
	Writes   float64
	Bytes    int // bodies, both ways
	Peak     int // requests at the service at one time
}

func newCount() *Count { return &Count{Ops: map[string]int{}, Classes: map[Class]int{}} }

func (c *Count) add(cost Cost, call Call) {
	c.Requests++
	c.Ops[cost.Op]++
	if cost.Class != "" {
		c.Classes[cost.Class]++
	}
	if call.Status >= http.StatusBadRequest {
		c.Refused++
	}
	c.Reads += cost.Reads
	c.Writes += cost.Writes
	c.Bytes += len(call.Body) + len(call.Answer)
}

// Event is one request that was answered.
type Event struct {
	Cost
	At     time.Time // when the answer came from the service
	Status int
}

// Meter is a running proxy. Its methods are safe for concurrent use. Close it.
type Meter struct {
	rule   Rule
	server *http.Server
	url    string
	served chan error
	client *http.Transport

	mu     sync.Mutex
	all    *Count
	keys   map[string]*Count
	active int
	tell   func(Event)
}

// idle is how long a connection to the service is kept: less than the five seconds after which a server on Node.js closes one, perhaps
// under a request that has just been sent and cannot be sent again.
const idle = 2 * time.Second

// New starts a proxy in front of the service at target on a free port of the loopback address. ctx bounds the start only.
func New(ctx context.Context, target string, rule Rule) (*Meter, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("start a meter: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a meter: %w", err)
	}
	m := &Meter{
		rule: rule, url: "http://" + l.Addr().String(), served: make(chan error, 1), all: newCount(), keys: map[string]*Count{},
		client: &http.Transport{MaxIdleConns: 512, MaxIdleConnsPerHost: 512, DisableCompression: true, IdleConnTimeout: idle},
	}
	proxy := &httputil.ReverseProxy{
		Transport: (*counting)(m),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
			r.Out.Host = r.In.Host // Azure's signatures and Consul's answers know the name that the client used
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	m.server = &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute}
	go func() { m.served <- m.server.Serve(l) }()
	return m, nil
}

// URL is where the proxy listens.
func (m *Meter) URL() string { return m.url }

// OnEvent calls f for every request that is answered from now on, one call at a time; nil: nobody.
func (m *Meter) OnEvent(f func(Event)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell = f
}

// Take returns what was counted since the last Take. Requests that are still at the service count when they are answered.
func (m *Meter) Take() Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.all
	m.all, m.keys = newCount(), map[string]*Count{}
	return *c
}

// Of returns what was counted for one key since the last Take.
func (m *Meter) Of(key string) Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.keys[key]; c != nil {
		return *c
	}
	return *newCount()
}

// Close ends the proxy.
func (m *Meter) Close() error {
	err := m.server.Close()
	if served := <-m.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	m.client.CloseIdleConnections()
	return err
}

// counting is the meter as the transport of its proxy.
type counting Meter

// RoundTrip passes one request on and counts it.
func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	m := (*Meter)(c)
	call := Call{Request: r}
	if r.Body != nil {
		var err error
		if call.Body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(call.Body))
	}
	m.enter()
	resp, err := m.client.RoundTrip(r)
	if err == nil {
		call.Status = resp.StatusCode
		call.Answer, err = io.ReadAll(resp.Body)
		err = errors.Join(err, resp.Body.Close())
		resp.Body = io.NopCloser(bytes.NewReader(call.Answer))
	}
	m.leave(call)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (m *Meter) enter() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active++
	m.all.Peak = max(m.all.Peak, m.active)
}

// leave counts a call. One without an answer was sent all the same, and is billed.
func (m *Meter) leave(call Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active--
	cost := m.rule.Cost(call)
	m.all.add(cost, call)
	if cost.Key != "" {
		if m.keys[cost.Key] == nil {
			m.keys[cost.Key] = newCount()
		}
		m.keys[cost.Key].add(cost, call)
	}
	if m.tell != nil {
		m.tell(Event{Cost: cost, At: time.Now(), Status: call.Status})
	}
}
