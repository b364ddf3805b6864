//go:build unix

package proxy

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
)

// Message is a request or an answer to it.
type Message struct {
	URL    *url.URL // of the request, also with an answer
	Header http.Header
	Body   []byte // not compressed
}

// learn lets the service's adapter tell what a message has that no log may show.
func (p *Proxy) learn(m Message) {
	if p.o.Secret == nil {
		return
	}
	if m.Header.Get("Content-Encoding") == "gzip" {
		if z, err := gzip.NewReader(bytes.NewReader(m.Body)); err == nil {
			m.Body, _ = io.ReadAll(z) // what can be read of one that broke off is told
		}
	}
	p.o.Service.Secrets(m, p.o.Secret)
}
