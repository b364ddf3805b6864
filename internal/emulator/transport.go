package emulator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Transport calls h directly, without sockets, so that clients of h work inside a testing/synctest bubble. The answer's
// Date header is now() in whole seconds, whatever h says: that is the clock of the service as its clients see it. A nil
// now is time.Now.
//
// A request whose context has ended before h was called never reaches h. If the context ends while h works, RoundTrip
// returns its error at once and h goes on, so that the effect may still come, as over a network; h sees the end of the
// context too. A handler that panics with http.ErrAbortHandler cuts the connection instead of answering.
func Transport(h http.Handler, now func() time.Time) http.RoundTripper {
	if now == nil {
		now = time.Now
	}
	return &transport{handler: h, now: now}
}

type transport struct {
	handler http.Handler
	now     func() time.Time
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := drain(req.Body) // before h runs, because the caller may reuse the body after an early return
	if err != nil {
		return nil, fmt.Errorf("read the body of a request: %w", err)
	}
	ctx := req.Context()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	answers := make(chan *recorder, 1)
	go func() { answers <- t.serve(req, body) }()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case rec := <-answers:
		if rec == nil {
			return nil, io.ErrUnexpectedEOF
		}
		return rec.response(req, t.now()), nil
	}
}

// serve lets the handler answer; nil means that it cut the connection.
func (t *transport) serve(req *http.Request, body []byte) (rec *recorder) {
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			rec = nil
		}
	}()
	in := req.Clone(req.Context())
	in.Body = io.NopCloser(bytes.NewReader(body))
	in.ContentLength = int64(len(body))
	in.RequestURI = req.URL.RequestURI()
	in.RemoteAddr = "127.0.0.1:0"
	if in.Host == "" {
		in.Host = req.URL.Host
	}
	rec = &recorder{header: http.Header{}}
	t.handler.ServeHTTP(rec, in)
	rec.WriteHeader(http.StatusOK)
	return rec
}

// drain reads and closes the body of a request.
func drain(body io.ReadCloser) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	b, err := io.ReadAll(body)
	return b, errors.Join(err, body.Close())
}

// httpDate is t as a Date header has it: UTC, whole seconds.
func httpDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// recorder keeps what a handler answers.
type recorder struct {
	header http.Header
	status int // 0 until the handler has decided
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

// WriteHeader keeps the first status only, like a connection.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}

// response is what was recorded, as a client gets it at the service's time now.
func (r *recorder) response(req *http.Request, now time.Time) *http.Response {
	r.header.Set("Date", httpDate(now))
	r.header.Set("Content-Length", strconv.Itoa(r.body.Len()))
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", r.status, http.StatusText(r.status)),
		StatusCode:    r.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        r.header,
		Body:          io.NopCloser(&r.body),
		ContentLength: int64(r.body.Len()),
		Request:       req,
	}
}
