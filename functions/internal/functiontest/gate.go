package functiontest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Gate stands between a function and DynamoDB: it records which permissions were needed, and denies some as IAM does.
type Gate struct {
	next http.Handler

	mu     sync.Mutex
	denied map[string]bool
	asked  map[string]bool
}

// NewGate makes a gate that lets everything pass to next.
func NewGate(next http.Handler) *Gate { return &Gate{next: next, asked: map[string]bool{}} }

// Deny denies these permissions alone from now on, each an action and a table: "dynamodb:GetItem locks".
func (g *Gate) Deny(permissions ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.denied = map[string]bool{}
	for _, p := range permissions {
		g.denied[p] = true
	}
}

// Asked are the permissions that were needed.
func (g *Gate) Asked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.asked))
}

// ServeHTTP implements http.Handler.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in struct{ TableName string }
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	action := "dynamodb:" + op
	g.mu.Lock()
	g.asked[action+" "+in.TableName] = true
	denied := g.denied[action+" "+in.TableName]
	g.mu.Unlock()
	if !denied {
		g.next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("X-Amzn-Requestid", "DENIED")
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprintf(w, `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"User: arn:aws:sts::123456789012:`+
		`assumed-role/f/f is not authorized to perform: %s on resource: arn:aws:dynamodb:eu-west-1:123456789012:table/%s `+
		`because no identity-based policy allows the %s action"}`, action, in.TableName, action) // the client may be gone
}
