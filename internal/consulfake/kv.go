package consulfake

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (c *call) kv(key string) (any, error) {
	switch c.r.Method {
	case http.MethodGet:
		return c.get(key)
	case http.MethodPut:
		return c.put(key)
	case http.MethodDelete:
		return c.delete(key)
	}
	return nil, fail(http.StatusMethodNotAllowed, "method not allowed")
}

func (c *call) get(key string) (any, error) {
	q := c.r.URL.Query()
	if q.Has("recurse") || q.Has("keys") {
		return c.block(func() (any, uint64, error) {
			found := c.treeOf(c.keys, key)
			if len(found) == 0 {
				return absent{}, c.kvIndex, nil
			}
			return found, c.kvIndex, nil
		})
	}
	if err := c.allow(keyRules, "key", "read", key); err != nil {
		return nil, err
	}
	return c.block(func() (any, uint64, error) {
		e := c.keys[key]
		if e == nil {
			return absent{}, c.kvIndex, nil
		}
		return []*Entry{e}, e.ModifyIndex, nil
	})
}

// treeOf is what is under a prefix, and may be read.
func (c *call) treeOf(keys map[string]*Entry, prefix string) []*Entry {
	var found []*Entry
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if strings.HasPrefix(key, prefix) && c.allow(keyRules, "key", "read", key) == nil {
			found = append(found, keys[key])
		}
	}
	return found
}

func (c *call) put(key string) (any, error) {
	if err := c.allow(keyRules, "key", "write", key); err != nil {
		return nil, err
	}
	value, err := io.ReadAll(c.r.Body)
	if err != nil {
		return nil, fail(http.StatusBadRequest, "read the value: %v", err)
	}
	q := c.r.URL.Query()
	flags, _ := strconv.ParseUint(q.Get("flags"), 10, 64)
	e := Entry{Key: key, Value: value, Flags: flags}
	op := kvOp{Verb: "set", Entry: e}
	switch {
	case q.Has("acquire"):
		op.Verb, op.Session = "lock", q.Get("acquire")
		if c.delayed(key) {
			return false, nil
		}
	case q.Has("release"):
		op.Verb, op.Session = "unlock", q.Get("release")
	case q.Has("cas"):
		op.Verb = "cas"
		op.Index, _ = strconv.ParseUint(q.Get("cas"), 10, 64)
	}
	t := &transaction{call: c, index: c.index + 1, keys: maps.Clone(c.keys)}
	if _, err := t.apply(op); err != nil {
		if strings.Contains(err.Error(), "invalid session") {
			return nil, fail(http.StatusInternalServerError, "%v", err)
		}
		return false, nil
	}
	t.commit()
	return true, nil
}

func (c *call) delete(key string) (any, error) {
	if err := c.allow(keyRules, "key", "write", key); err != nil {
		return nil, err
	}
	c.remove(key, c.r.URL.Query().Has("recurse"))
	return true, nil
}

func (s *Server) remove(key string, recurse bool) bool {
	removed := false
	for k := range s.keys {
		if k == key || recurse && strings.HasPrefix(k, key) {
			delete(s.keys, k)
			removed = true
		}
	}
	if removed {
		s.kvIndex = s.next()
	}
	return removed
}

// Delete deletes a key, or all below it, behind everybody's back. It tells whether there was something.
func (s *Server) Delete(key string, recurse bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(key, recurse)
}

// Put writes a key behind everybody's back. Who has it locked keeps it.
func (s *Server) Put(key string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := Entry{Key: key, CreateIndex: s.index + 1}
	if have := s.keys[key]; have != nil {
		e.CreateIndex, e.Session = have.CreateIndex, have.Session
	}
	e.Value, e.ModifyIndex = bytes.Clone(value), s.next()
	s.keys[key], s.kvIndex = &e, e.ModifyIndex
}

// Get is a key as it is, or nil.
func (s *Server) Get(key string) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.keys[key]; e != nil {
		same := *e
		return &same
	}
	return nil
}

// Keys are all keys below a prefix.
func (s *Server) Keys(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	for key := range s.keys {
		if strings.HasPrefix(key, prefix) {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	return found
}

// delayed tells whether a lock-delay keeps a key closed.
func (s *Server) delayed(key string) bool { return s.delays[key].After(time.Now()) }
