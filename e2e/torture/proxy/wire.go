//go:build unix

package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/history"
)

// Answer is what a service says instead of doing what it is asked.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// forward sends the request to the service. A write goes on although its sender has gone, as one does that is on its way.
func (p *Proxy) forward(r *http.Request, body []byte, req Request, e *Entry) (*copied, error) {
	ctx := r.Context()
	if !req.Read {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, lateEffect)
	defer cancel()
	sent := history.Now()
	answer, err := p.send(ctx, r, body)
	e.Served = history.Now() - sent
	return answer, err
}

func (p *Proxy) send(ctx context.Context, r *http.Request, body []byte) (*copied, error) {
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = "http", p.o.Target
	out.RequestURI = ""
	out.Body, out.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 { // a reader of nothing would be sent as a body of unknown length
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	resp, err := p.client.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	return &copied{status: resp.StatusCode, header: resp.Header.Clone(), body: content}, err
}

// again delivers the request a second time, later. Nobody sees the answer.
func (p *Proxy) again(r *http.Request, body []byte, after time.Duration) {
	ctx := context.WithoutCancel(r.Context())
	p.work.Go(func() {
		p.hold(ctx, after)
		select {
		case <-p.closed:
			return
		default:
		}
		e := Entry{At: history.Now(), From: p.o.Name, Op: "second delivery", Fault: Duplicate}
		ctx, cancel := context.WithTimeout(ctx, lateEffect)
		defer cancel()
		answer, err := p.send(ctx, r, body)
		if err == nil {
			e.Status = answer.status
		} else {
			e.Err = err.Error()
		}
		e.Took = history.Now() - e.At
		p.o.Log(e)
	})
}

// sever resets the connection.
func sever(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // makes Close send a reset
	}
	_ = conn.Close()
}

// copied is an answer of the service.
type copied struct {
	at     time.Duration // when it was remembered
	status int
	header http.Header
	body   []byte
}

func (c *copied) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), c.header)
	w.WriteHeader(c.status)
	_, _ = w.Write(c.body) // a client that has gone does not need it
}

func (a Answer) write(w http.ResponseWriter) {
	(&copied{status: a.Status, header: a.Header, body: []byte(a.Body)}).write(w)
}
