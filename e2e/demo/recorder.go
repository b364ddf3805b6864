package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// Item is an item of a table.
type Item = map[string]types.AttributeValue

// Verdict is what the store made of a write.
type Verdict string

// The verdicts.
const (
	Took    Verdict = "took"    // the write is done
	Refusal Verdict = "refused" // its condition did not hold; nothing was changed
	Failure Verdict = "failed"  // anything else
)

// Write is a write that reached the store.
type Write struct {
	At      time.Time // when the store had decided
	Table   string
	Key     string
	Verdict Verdict
	Fence   string // the fencing token that the write carried, empty for none
	Value   []byte // the guarded value that the write carried, nil for none
	Item    Item   // the item as the store has it after the write
}

// Recorder is the door of the store: everything passes it. It writes down each write, the store's verdict, and what the store
// has afterwards, so that what happened can be told by the store and not by those who took part.
type Recorder struct {
	store  http.Handler
	inside *dynamodb.Client // reads past the door
	keys   map[string]string

	mu     sync.Mutex // one write at a time, so that Item is what this write left
	writes []Write
	others int
}

// NewRecorder makes a recorder in front of store. keys has the hash key, a string, of every table whose writes are recorded.
func NewRecorder(store http.Handler, keys map[string]string) *Recorder {
	return &Recorder{store: store, inside: emulator.Client("", emulator.Transport(store, nil)), keys: keys}
}

// Writes are the writes so far, oldest first.
func (r *Recorder) Writes() []Write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Write(nil), r.writes...)
}

// Others is how many other requests have come: reads, and writes that are not watched.
func (r *Recorder) Others() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.others
}

// ServeHTTP passes the request on and records it.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, "the request broke off", http.StatusBadRequest)
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	_, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, table, key := r.watched(op, body)
	if table == "" {
		r.others++
		r.store.ServeHTTP(w, req)
		return
	}
	answer := &copied{ResponseWriter: w}
	r.store.ServeHTTP(answer, req)
	r.writes = append(r.writes, Write{
		At: time.Now(), Table: table, Key: key, Verdict: answer.verdict(),
		Fence: sent.carried("fence").N, Value: sent.carried("value").B, Item: r.read(req.Context(), table, key),
	})
}

// watched decodes a request. The table is empty if it is not a write that is recorded.
func (r *Recorder) watched(op string, body []byte) (sent request, table, key string) {
	if op != "UpdateItem" && op != "PutItem" && op != "DeleteItem" {
		return sent, "", ""
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		return sent, "", "" // the store will say it
	}
	attr, ok := r.keys[sent.TableName]
	if !ok {
		return sent, "", ""
	}
	from := sent.Key
	if from == nil {
		from = sent.Item
	}
	return sent, sent.TableName, from[attr].S
}

// read is what the store has under a key, nil if nothing.
func (r *Recorder) read(ctx context.Context, table, key string) Item {
	out, err := r.inside.GetItem(context.WithoutCancel(ctx), &dynamodb.GetItemInput{
		TableName: &table, ConsistentRead: aws.Bool(true),
		Key: Item{r.keys[table]: &types.AttributeValueMemberS{Value: key}},
	})
	if err != nil {
		return nil
	}
	return out.Item
}

// request has the parts of a write that are recorded, as they are on the wire.
type request struct {
	TableName                 string
	Key, Item                 map[string]wireValue
	UpdateExpression          string
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues map[string]wireValue
}

type wireValue struct {
	S, N string
	B    []byte
}

// carried is what the write sets an attribute to, empty if it does not.
func (q request) carried(attr string) wireValue {
	if v, ok := q.Item[attr]; ok {
		return v
	}
	for alias, name := range q.ExpressionAttributeNames {
		if name != attr {
			continue
		}
		for placeholder, v := range q.ExpressionAttributeValues {
			if strings.Contains(q.UpdateExpression+",", fmt.Sprintf("%s = %s,", alias, placeholder)) {
				return v
			}
		}
	}
	return wireValue{}
}

// copied is an answer on its way out, of which the status and an error's name are kept.
type copied struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader keeps the status.
func (c *copied) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

// Write keeps the body.
func (c *copied) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	c.body.Write(b)
	return c.ResponseWriter.Write(b)
}

func (c *copied) verdict() Verdict {
	switch {
	case c.status == http.StatusOK:
		return Took
	case bytes.Contains(c.body.Bytes(), []byte("ConditionalCheckFailedException")):
		return Refusal
	}
	return Failure
}
