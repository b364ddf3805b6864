//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// door is the store's door: everything passes it, and the writes that the store took are written down.
type door struct {
	store http.Handler

	mu      sync.Mutex        // one request at a time, so that the order written down is the order of effects
	names   map[string]string // worker lease and token -> process
	owners  map[string]owner  // shard -> who owns it now
	spans   []span
	writes  []write
	refused int
	ends    map[string]bool
}

// owner is the row's view of an owner.
type owner struct {
	who   string
	token uint64
	from  time.Time
}

// span is a time during which a process owned a shard.
type span struct {
	shard, who  string
	token       uint64
	from, until time.Time
	ended       bool // by the shard's end
}

// write is a record that was processed: a guarded write that the store took.
type write struct {
	at     time.Time
	shard  string
	number int
	token  uint64
	who    string
}

func newDoor(store http.Handler) *door {
	return &door{store: store, names: map[string]string{}, owners: map[string]owner{}, ends: map[string]bool{}}
}

// request is what the door reads of a request.
type request struct {
	TableName                 string
	Key                       map[string]struct{ S string }
	ExpressionAttributeValues map[string]struct {
		S, N string
		B    []byte
	}
}

// recorder keeps an answer's status.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status and passes it on.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// ServeHTTP passes the request on and writes down what it did.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the request broke off", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	d.mu.Lock()
	defer d.mu.Unlock()
	rec := &recorder{w, http.StatusOK}
	d.store.ServeHTTP(rec, r)
	var q request
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".UpdateItem") || json.Unmarshal(body, &q) != nil {
		return
	}
	if rec.status != http.StatusOK {
		if q.TableName == "results" {
			d.refused++
		}
		return
	}
	d.note(q, time.Now())
}

// note reads a write that was done. d.mu is held.
func (d *door) note(q request, at time.Time) {
	v := q.ExpressionAttributeValues
	name := q.Key["name"].S
	switch {
	case q.TableName == "results":
		var r struct {
			Shard  string
			Number int
		}
		if json.Unmarshal(v[":b"].B, &r) == nil {
			who, _, _ := strings.Cut(v[":h"].S, ":")
			d.writes = append(d.writes, write{at, r.Shard, r.Number, number(v[":t"].N), who})
		}
	case strings.HasPrefix(name, group+"/w/") && v[":h"].S != "" && v[":v"].N != "":
		who, _, _ := strings.Cut(v[":h"].S, ":")
		d.names[v[":v"].N] = who
	case strings.HasPrefix(name, "\x1f"+group+"/s/"):
		var row struct {
			Token, Worker uint64
			End           bool
		}
		if json.Unmarshal(v[":d"].B, &row) == nil {
			d.noteRow(strings.TrimPrefix(name, "\x1f"+group+"/s/"), row.Token, row.Worker, row.End, at)
		}
	}
}

func (d *door) noteRow(shard string, token, worker uint64, end bool, at time.Time) {
	have, owned := d.owners[shard]
	if owned && (worker == 0 || token != have.token) {
		d.spans = append(d.spans, span{shard, have.who, have.token, have.from, at, end})
		delete(d.owners, shard)
		owned = false
	}
	if worker != 0 && !owned {
		d.owners[shard] = owner{d.names[text(worker)], token, at}
	}
	if end {
		d.ends[shard] = true
	}
}

// ended is how many shards have come to their end.
func (d *door) ended() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ends)
}

// story is what was seen.
type story struct {
	spans   []span
	writes  []write
	refused int
}

func (d *door) story() story {
	d.mu.Lock()
	defer d.mu.Unlock()
	return story{d.spans, d.writes, d.refused}
}
