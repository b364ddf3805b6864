package emulator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truora/minidyn/server"
)

// NewEmbedded is a DynamoDB-compatible engine in memory, in this process: minidyn with what a lock would trip on mended,
// and with an error for what cannot be mended. Every call makes an engine of its own, empty.
//
// Mended: concurrent use, TableStatus and the rest of a table's description, the old item of a failed condition on
// PutItem and DeleteItem, the ClientRequestToken of transactions, empty binary values, empty keys, the form of errors.
//
// Refused with a ValidationException:
//   - REMOVE, which minidyn ignores
//   - an update expression that reads an attribute which another of its actions changes; minidyn reads the new value
//   - a dot in the hash key of a table with a range key, and range keys that are not strings
//   - empty lists and maps
//   - parallel scans, consistent reads of an index, and indexes that are missing or local
//
// Operations that are not known to work are an UnknownOperationException. Left as it is: numbers are float64 and exact
// up to 2^53 only, comparing values of different types is an error instead of false, an empty binary value has a size,
// and ScannedCount is missing.
func NewEmbedded() http.Handler {
	return &embedded{minidyn: server.NewServer(), tables: map[string]*table{}, done: map[string]string{}}
}

type embedded struct {
	requests atomic.Uint64

	mu      sync.Mutex // one request at a time: minidyn itself guards only some of its operations
	minidyn http.Handler
	tables  map[string]*table
	done    map[string]string // request token of a transaction that was done -> the transaction
}

// operations are the ones that were seen to work.
var operations = map[string]bool{
	"CreateTable": true, "DeleteTable": true, "DescribeTable": true,
	"GetItem": true, "PutItem": true, "UpdateItem": true, "DeleteItem": true, "Query": true, "Scan": true,
	"TransactGetItems": true, "TransactWriteItems": true,
}

// answer is the status and the body of an answer.
type answer struct {
	status int
	body   []byte
}

func (e *embedded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := e.receive(r)
	a.body = toWire(a.body)
	h := w.Header()
	h.Set("Date", httpDate(time.Now())) // net/http would add it, but a handler called without a server has to do so itself
	h.Set("Content-Type", "application/x-amz-json-1.0")
	h.Set("X-Amzn-Requestid", fmt.Sprintf("EMBEDDED%08d", e.requests.Add(1)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client went away: nobody is left to be told
}

func (e *embedded) receive(r *http.Request) answer {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return refusal("SerializationException", "read the request: "+err.Error())
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if r.Method != http.MethodPost || !operations[op] {
		return refusal("UnknownOperationException", fmt.Sprintf("%s %q is not supported by the embedded engine", r.Method, op))
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, body); err != nil {
		return refusal("SerializationException", err.Error())
	}
	body, err = fromWire(compact.Bytes())
	if err != nil {
		return refusal("ValidationException", err.Error())
	}
	var q request
	if err := json.Unmarshal(body, &q); err != nil {
		return refusal("SerializationException", err.Error())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.perform(r.Context(), op, body, &q)
}

// perform does one operation. e.mu is held.
func (e *embedded) perform(ctx context.Context, op string, body []byte, q *request) answer {
	if err := e.check(op, q); err != nil {
		return refusal("ValidationException", err.Error())
	}
	token := q.ClientRequestToken
	if before, done := e.done[token]; done && op == "TransactWriteItems" {
		if before != canonical(body) {
			return refusal("IdempotentParameterMismatchException", "this request token was used for another transaction")
		}
		return answer{http.StatusOK, []byte("{}")}
	}
	a := e.forward(ctx, op, body)
	switch op {
	case "CreateTable":
		if a.status == http.StatusOK {
			e.tables[q.TableName] = newTable(q)
		}
		return e.describe(a, q.TableName, "ACTIVE")
	case "DescribeTable":
		return e.describe(a, q.TableName, "ACTIVE")
	case "DeleteTable":
		a = e.describe(a, q.TableName, "DELETING")
		if a.status == http.StatusOK {
			delete(e.tables, q.TableName)
		}
	case "PutItem", "UpdateItem", "DeleteItem":
		return e.addOldItem(ctx, a, q)
	case "TransactWriteItems":
		if a.status == http.StatusOK && token != "" {
			e.done[token] = canonical(body)
		}
	}
	return a
}

// forward passes a request on to minidyn.
func (e *embedded) forward(ctx context.Context, op string, body []byte) answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body))
	if err != nil {
		return refusal("SerializationException", err.Error())
	}
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	rec := &recorder{header: http.Header{}}
	e.minidyn.ServeHTTP(rec, r)
	return answer{rec.status, rec.body.Bytes()}
}

// emptyBinary, in base64, stands for an empty binary value inside minidyn, which has none.
const emptyBinary = "AGVtcHR5IGJpbmFyeSB2YWx1ZQA="

var (
	wireEmpty  = []byte(`"B":""`)
	innerEmpty = []byte(`"B":"` + emptyBinary + `"`)
)

// fromWire rewrites values that minidyn cannot keep, or refuses them. In compact JSON these bytes are never part of a
// string, where the quotes would be escaped.
func fromWire(compact []byte) ([]byte, error) {
	body := bytes.ReplaceAll(compact, wireEmpty, innerEmpty)
	if bytes.Contains(body, []byte(`"L":[]`)) || bytes.Contains(body, []byte(`"M":{}`)) {
		return nil, errors.New("empty lists and maps are not supported by the embedded engine")
	}
	return body, nil
}

func toWire(body []byte) []byte { return bytes.ReplaceAll(body, innerEmpty, wireEmpty) }

// addOldItem puts the present item into a failed condition's answer where the request asked for it. Nobody can have
// changed it since, because e.mu is held.
func (e *embedded) addOldItem(ctx context.Context, a answer, q *request) answer {
	var failure struct {
		Type    string                     `json:"__type"`
		Message string                     `json:"message"`
		Item    map[string]json.RawMessage `json:",omitempty"`
	}
	if a.status == http.StatusOK || q.ReturnValuesOnConditionCheckFailure != "ALL_OLD" {
		return a
	}
	if err := json.Unmarshal(a.body, &failure); err != nil || failure.Type != "ConditionalCheckFailedException" {
		return a
	}
	got := e.forward(ctx, "GetItem", marshal(map[string]any{"TableName": q.TableName, "Key": e.tables[q.TableName].keyOf(q)}))
	failure.Item = nil
	if err := json.Unmarshal(got.body, &failure); err != nil || got.status != http.StatusOK {
		return got
	}
	return answer{a.status, marshal(failure)}
}

// refusal is an error in the form of the service.
func refusal(class, message string) answer {
	return answer{http.StatusBadRequest, marshal(map[string]string{"__type": class, "message": message})}
}

// marshal encodes what is known to be encodable.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("emulator: encode %T: %v", v, err))
	}
	return b
}

// canonical makes two encodings of one request equal: the SDK writes maps in random order.
func canonical(body []byte) string {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return string(body)
	}
	return string(marshal(v))
}
