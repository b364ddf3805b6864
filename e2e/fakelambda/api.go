//go:build unix

package fakelambda

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	functionName = "test"
	region       = "eu-west-1"
	functionARN  = "arn:aws:lambda:" + region + ":123456789012:function:" + functionName
)

// event is an invocation on its way to the runtime and back.
type event struct {
	Invocation
	deadline time.Time
	answer   chan Result // holds the first answer
}

// answered takes the answer, if there is one. It is posted before the runtime polls or exits, so whoever sees one of these
// finds it.
func (e *event) answered() (Result, bool) {
	select {
	case r := <-e.answer:
		return r, true
	default:
		return Result{}, false
	}
}

// routes is the part of the runtime and extensions APIs that aws-lambda-go uses.
func (p *process) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", p.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) {
		p.take(w, r, func(body []byte) Result {
			if kind := r.Trailer.Get("Lambda-Runtime-Function-Error-Type"); kind != "" { // failed while it was being written
				reason, err := base64.StdEncoding.DecodeString(r.Trailer.Get("Lambda-Runtime-Function-Error-Body"))
				if err != nil {
					reason = nil
				}
				return Result{ErrorType: kind, ErrorBody: reason}
			}
			return Result{Body: body}
		})
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", func(w http.ResponseWriter, r *http.Request) {
		p.take(w, r, func(body []byte) Result { return Result{ErrorType: errorType(body), ErrorBody: body} })
	})
	mux.HandleFunc("POST /2020-01-01/extension/register", func(w http.ResponseWriter, _ *http.Request) {
		p.registered.Store(true)
		w.Header().Set("Lambda-Extension-Identifier", newID())
		_, _ = fmt.Fprintf(w, `{"functionName":%q,"functionVersion":"$LATEST","handler":""}`, functionName)
	})
	mux.HandleFunc("GET /2020-01-01/extension/event/next", func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // an extension that asked for no events gets none
	})
	return mux
}

// next holds the poll until there is an event.
func (p *process) next(w http.ResponseWriter, r *http.Request) {
	select {
	case p.polled <- struct{}{}:
	default:
	}
	select {
	case <-r.Context().Done():
	case e := <-p.events:
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Lambda-Runtime-Aws-Request-Id", e.ID)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(e.deadline.UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", functionARN)
		_, _ = w.Write(e.Payload) // if the runtime is gone, its exit ends the invocation
	}
}

// take accepts an answer to the event that runs, and no other.
func (p *process) take(w http.ResponseWriter, r *http.Request, result func(body []byte) Result) {
	body, err := io.ReadAll(r.Body)
	e := p.current.Load()
	if err != nil || e == nil || e.ID != r.PathValue("id") {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"errorType":"InvalidRequestID","errorMessage":"no such invocation is running"}`)
		return
	}
	select {
	case e.answer <- result(body):
	default: // the first answer counts
	}
	w.WriteHeader(http.StatusAccepted)
}

// errorType is what a runtime calls an error.
func errorType(body []byte) string {
	var e struct {
		Type string `json:"errorType"`
	}
	if json.Unmarshal(body, &e) != nil || e.Type == "" {
		return "Unhandled"
	}
	return e.Type
}
