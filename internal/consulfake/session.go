package consulfake

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

func (c *call) session(path string) (any, error) {
	verb, id, _ := strings.Cut(path, "/")
	switch verb {
	case "create":
		return c.createSession()
	case "destroy":
		if ses := c.sessions[id]; ses != nil {
			if err := c.allow(sessionRules, "session", "write", ses.Node); err != nil {
				return nil, err
			}
			c.endSession(ses)
		}
		return true, nil
	case "renew":
		ses := c.sessions[id]
		if ses == nil {
			return nil, fail(http.StatusNotFound, "Session id '%s' not found", id)
		}
		if err := c.allow(sessionRules, "session", "write", ses.Node); err != nil {
			return nil, err
		}
		c.restart(ses)
		return []*Session{ses}, nil
	case "info":
		return c.block(func() (any, uint64, error) {
			found := []*Session{}
			if ses := c.sessions[id]; ses != nil && c.allow(sessionRules, "session", "read", ses.Node) == nil {
				found = append(found, ses)
			}
			return found, c.index, nil
		})
	case "list", "node":
		return c.block(func() (any, uint64, error) {
			found := []*Session{}
			for _, ses := range c.sessions {
				if (verb == "list" || ses.Node == id) && c.allow(sessionRules, "session", "read", ses.Node) == nil {
					found = append(found, ses)
				}
			}
			return found, c.index, nil
		})
	}
	return nil, fail(http.StatusNotFound, "no such endpoint: session/%s", verb)
}

func (c *call) createSession() (any, error) {
	var in struct {
		Name, Node, TTL, Behavior string
		LockDelay                 any
		NodeChecks                []string
	}
	in.Node, in.NodeChecks = c.opt.Node, []string{"serfHealth"}
	if err := json.NewDecoder(c.r.Body).Decode(&in); err != nil && c.r.ContentLength > 0 {
		return nil, fail(http.StatusBadRequest, "Request decode failed: %v", err)
	}
	if err := c.allow(sessionRules, "session", "write", in.Node); err != nil {
		return nil, err
	}
	ses := &Session{
		ID: newID(), Name: in.Name, Node: in.Node, LockDelay: 15 * time.Second, Behavior: in.Behavior, TTL: in.TTL, NodeChecks: in.NodeChecks,
	}
	if text, ok := in.LockDelay.(string); ok {
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fail(http.StatusBadRequest, "Request decode failed: %v", err)
		}
		ses.LockDelay = d
	}
	if ses.Behavior == "" {
		ses.Behavior = "release"
	}
	if in.TTL != "" {
		var err error
		if ses.ttl, err = time.ParseDuration(in.TTL); err != nil {
			return nil, fail(http.StatusInternalServerError, "Session TTL '%s' invalid: %v", in.TTL, err)
		}
		if ses.ttl < c.opt.MinTTL || ses.ttl > 24*time.Hour {
			return nil, fail(http.StatusInternalServerError, "Invalid Session TTL '%d', must be between [%v=24h0m0s]", ses.ttl, c.opt.MinTTL)
		}
	}
	if !c.nodes[in.Node] {
		return nil, fail(http.StatusInternalServerError, "Missing node registration")
	}
	for _, check := range ses.NodeChecks {
		if check != "serfHealth" {
			return nil, fail(http.StatusInternalServerError, "Missing check '%s' registration", check)
		}
	}
	ses.CreateIndex = c.next()
	ses.ModifyIndex = ses.CreateIndex
	c.sessions[ses.ID] = ses
	c.restart(ses)
	return map[string]string{"ID": ses.ID}, nil
}

// restart starts the session's time anew.
func (s *Server) restart(ses *Session) {
	if ses.ttl == 0 {
		return
	}
	if ses.timer != nil {
		ses.timer.Stop()
	}
	ses.timer = time.AfterFunc(time.Duration(float64(ses.ttl)*s.opt.Expiry), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sessions[ses.ID] == ses {
			s.endSession(ses)
		}
	})
}

// endSession ends a session and what it has locked.
func (s *Server) endSession(ses *Session) {
	delete(s.sessions, ses.ID)
	if ses.timer != nil {
		ses.timer.Stop()
	}
	index := s.next()
	for key, e := range s.keys {
		if e.Session != ses.ID {
			continue
		}
		s.kvIndex = index
		if ses.LockDelay > 0 {
			s.delays[key] = time.Now().Add(ses.LockDelay)
		}
		if ses.Behavior == "delete" {
			delete(s.keys, key)
			continue
		}
		freed := *e
		freed.Session, freed.ModifyIndex = "", index
		s.keys[key] = &freed
	}
}

// Sessions are those that live, by their names.
func (s *Server) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Session
	for _, ses := range s.sessions {
		all = append(all, Session{
			ID: ses.ID, Name: ses.Name, Node: ses.Node, LockDelay: ses.LockDelay, Behavior: ses.Behavior, TTL: ses.TTL,
			NodeChecks: ses.NodeChecks, CreateIndex: ses.CreateIndex, ModifyIndex: ses.ModifyIndex,
		})
	}
	slices.SortFunc(all, func(a, b Session) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// DestroySession ends a session as an operator would.
func (s *Server) DestroySession(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := s.sessions[id]; ses != nil {
		s.endSession(ses)
	}
}

// SetLeader says whether the cluster has a leader. A new leader starts the time of all sessions anew, and knows of no
// lock-delay.
func (s *Server) SetLeader(has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headless = !has
	for _, ses := range s.sessions {
		switch {
		case has:
			s.restart(ses)
		case ses.timer != nil:
			ses.timer.Stop()
		}
	}
	if has {
		clear(s.delays)
	}
}

// SetIndex lets the index be another, lower or higher, as after a restore.
func (s *Server) SetIndex(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index, s.kvIndex = index, min(index, s.kvIndex)
}

// Close stops all timers.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.sessions {
		if ses.timer != nil {
			ses.timer.Stop()
		}
	}
}
