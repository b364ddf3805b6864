package consulfake

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options say how a server behaves. The zero value of every field is what Consul does by default.
type Options struct {
	Datacenter string        // default dc1
	Node       string        // of the agent; default agent
	MinTTL     time.Duration // session_ttl_min; default 10 s
	Expiry     float64       // a session ends at its TTL times this; default 2
	// Policies are the rights of ACL tokens; nil: there are no ACLs. The empty token is the anonymous one.
	Policies map[string]Policy
}

// Policy is what an ACL token may do: "read", "write" or "deny" by the longest prefix of a key or of a node's name. What has no
// rule is denied.
type Policy struct {
	Keys, Sessions map[string]string
}

// Server is a Consul. Its methods are safe for concurrent use.
type Server struct {
	opt Options

	mu       sync.Mutex
	index    uint64
	kvIndex  uint64 // of the last change of any key
	keys     map[string]*Entry
	sessions map[string]*Session
	nodes    map[string]bool
	delays   map[string]time.Time // when a lock-delay ends, by key
	changed  chan struct{}        // closed at the next change
	headless bool
}

// Entry is a key.
type Entry struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte
	Session     string `json:",omitempty"`
	CreateIndex uint64
	ModifyIndex uint64
}

// Session is a session.
type Session struct {
	ID                       string
	Name                     string
	Node                     string
	LockDelay                time.Duration
	Behavior                 string
	TTL                      string
	NodeChecks               []string
	CreateIndex, ModifyIndex uint64

	ttl   time.Duration
	timer *time.Timer
}

// New makes an empty server.
func New(o *Options) *Server {
	s := &Server{
		index: 10, keys: map[string]*Entry{}, sessions: map[string]*Session{}, delays: map[string]time.Time{}, changed: make(chan struct{}),
	}
	if o != nil {
		s.opt = *o
	}
	if s.opt.Datacenter == "" {
		s.opt.Datacenter = "dc1"
	}
	if s.opt.Node == "" {
		s.opt.Node = "agent"
	}
	if s.opt.MinTTL == 0 {
		s.opt.MinTTL = 10 * time.Second
	}
	if s.opt.Expiry == 0 {
		s.opt.Expiry = 2
	}
	s.opt.Policies = maps.Clone(s.opt.Policies)
	s.nodes = map[string]bool{s.opt.Node: true}
	return s
}

// Revoke takes an ACL token back.
func (s *Server) Revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.opt.Policies, token)
}

// refusal is an answer that is a failure.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

func fail(code int, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// call is one request.
type call struct {
	*Server
	w      http.ResponseWriter
	r      *http.Request
	policy *Policy // nil: everything is allowed
	token  string
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{Server: s, w: w, r: r, token: r.Header.Get("X-Consul-Token")}
	answer, err := c.serve()
	if err != nil {
		code := http.StatusInternalServerError
		if f, ok := err.(*refusal); ok { //nolint:errorlint // made here
			code = f.code
		}
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch a := answer.(type) {
	case absent:
		w.WriteHeader(http.StatusNotFound)
		return
	case conflicting:
		w.WriteHeader(http.StatusConflict)
		answer = a.body
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// absent is an answer with status 404 and no body.
type absent struct{}

// conflicting is an answer with status 409.
type conflicting struct{ body any }

func (c *call) serve() (any, error) {
	s := c.Server
	s.mu.Lock()
	defer s.mu.Unlock()
	if dc := c.r.URL.Query().Get("dc"); dc != "" && dc != s.opt.Datacenter {
		return nil, fail(http.StatusInternalServerError, "No path to datacenter")
	}
	if s.opt.Policies != nil {
		p, ok := s.opt.Policies[c.token]
		if !ok {
			return nil, fail(http.StatusForbidden, "ACL not found")
		}
		c.policy = &p
	}
	path := strings.TrimPrefix(c.r.URL.Path, "/v1/")
	if s.headless && !strings.HasPrefix(path, "agent/") {
		return nil, fail(http.StatusInternalServerError, "No cluster leader")
	}
	switch {
	case strings.HasPrefix(path, "kv/"):
		return c.kv(strings.TrimPrefix(path, "kv/"))
	case path == "txn":
		return c.txn()
	case strings.HasPrefix(path, "session/"):
		return c.session(strings.TrimPrefix(path, "session/"))
	case path == "catalog/register", path == "catalog/deregister":
		return c.catalog(path)
	case path == "catalog/datacenters":
		return []string{s.opt.Datacenter}, nil
	case path == "agent/self":
		return map[string]any{
			"Config":      map[string]any{"Datacenter": s.opt.Datacenter, "NodeName": s.opt.Node, "Server": true, "Version": "1.14.11"},
			"DebugConfig": map[string]any{"SessionTTLMin": s.opt.MinTTL.String()},
		}, nil
	}
	return nil, fail(http.StatusNotFound, "no such endpoint: %s", path)
}

func (c *call) catalog(path string) (any, error) {
	var in struct{ Node string }
	if err := json.NewDecoder(c.r.Body).Decode(&in); err != nil {
		return nil, fail(http.StatusBadRequest, "Request decode failed: %v", err)
	}
	if path == "catalog/register" {
		c.nodes[in.Node] = true
		return true, nil
	}
	delete(c.nodes, in.Node)
	for _, ses := range c.sessions {
		if ses.Node == in.Node {
			c.endSession(ses)
		}
	}
	return true, nil
}

// allow tells whether the request may do access ("read" or "write") to a resource.
func (c *call) allow(rules func(*Policy) map[string]string, kind, access, name string) error {
	if c.policy == nil {
		return nil
	}
	best, rule := -1, "deny"
	for prefix, r := range rules(c.policy) {
		if strings.HasPrefix(name, prefix) && len(prefix) > best {
			best, rule = len(prefix), r
		}
	}
	if rule == "write" || rule == "read" && access == "read" {
		return nil
	}
	return fail(http.StatusForbidden, "Permission denied: token with AccessorID '8d2a4b7e-0000-4000-8000-000000000001' lacks permission '%s:%s' on %q", kind, access, name)
}

func keyRules(p *Policy) map[string]string     { return p.Keys }
func sessionRules(p *Policy) map[string]string { return p.Sessions }

// next begins a change, and tells those who wait for one.
func (s *Server) next() uint64 {
	s.index++
	close(s.changed)
	s.changed = make(chan struct{})
	return s.index
}

func (c *call) meta(index uint64) {
	h := c.w.Header()
	h.Set("X-Consul-Index", strconv.FormatUint(max(index, 1), 10))
	h.Set("X-Consul-KnownLeader", "true")
	h.Set("X-Consul-LastContact", "0")
}

// block answers at once, or when get has an index above the one that the request waits for.
func (c *call) block(get func() (answer any, index uint64, err error)) (any, error) {
	q := c.r.URL.Query()
	least, _ := strconv.ParseUint(q.Get("index"), 10, 64)
	wait, err := time.ParseDuration(q.Get("wait"))
	if err != nil || wait <= 0 {
		wait = 5 * time.Minute
	}
	wait = min(wait, 10*time.Minute)
	timer := time.NewTimer(wait + time.Duration(c.index)*time.Millisecond%max(wait/16, 1)) // the service spreads them at random
	defer timer.Stop()
	for {
		answer, index, err := get()
		if err != nil || least == 0 || index > least {
			c.meta(index)
			return answer, err
		}
		changed := c.changed
		c.mu.Unlock()
		over := false
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-c.r.Context().Done():
			over = true
		}
		c.mu.Lock()
		if over {
			answer, index, err := get()
			c.meta(index)
			return answer, err
		}
	}
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
