package blobfake

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// blob is a blob.
type blob struct {
	kind     string // PageBlob or BlockBlob
	content  []byte
	sequence int64
	metadata map[string]string
	tags     map[string]string
	etag     string
	modified time.Time
	created  time.Time
	held     leaseState
}

const maxMetadata = 8 << 10

// touch makes b a new version of itself.
func (c *call) touch(b *blob) {
	c.writes++
	b.etag = fmt.Sprintf("\"0x8D%013X\"", c.writes)
	b.modified = c.now
}

func (c *call) find() *blob {
	b := c.containers[c.container][c.name]
	if b != nil {
		b.held.update(c.now)
	}
	return b
}

// writable finds the blob of a write and checks the write's conditions, the lease first.
func (c *call) writable() (*blob, *Error) {
	b := c.find()
	if b == nil {
		return nil, errNoBlob
	}
	return b, c.checkWrite(b)
}

// checkWrite checks a write's lease id and its conditions, in the order of the engine.
func (c *call) checkWrite(b *blob) *Error {
	var lease *Error
	conditions := c.conditions(b)
	if b != nil {
		lease = b.held.checkWrite(c.r.Header.Get("x-ms-lease-id"))
	}
	if c.Azurite && conditions != nil || lease == nil {
		return conditions
	}
	return lease
}

// describe puts what every answer about a blob carries into the header.
func (c *call) describe(b *blob) {
	h := c.w.Header()
	h.Set("ETag", b.etag)
	h.Set("Last-Modified", b.modified.UTC().Format(http.TimeFormat))
	if b.kind == "PageBlob" {
		h.Set("x-ms-blob-sequence-number", strconv.FormatInt(b.sequence, 10))
	}
}

func (c *call) requestMetadata() (map[string]string, *Error) {
	m, size := map[string]string{}, 0
	for key, values := range c.r.Header {
		if name, ok := strings.CutPrefix(strings.ToLower(key), "x-ms-meta-"); ok {
			m[name] = values[0]
			size += len(name) + len(values[0])
		}
	}
	if size > maxMetadata {
		return nil, errMetadata
	}
	return m, nil
}

func (c *call) putBlob() *Error {
	kind := c.r.Header.Get("x-ms-blob-type")
	if kind == "PageBlob" && c.NoPageBlobs {
		return errNoPageBlobs
	}
	old := c.find()
	if e := c.checkWrite(old); e != nil {
		return e
	}
	b := &blob{kind: kind, created: c.now, content: c.body}
	if old != nil {
		b.held = old.held
		b.held.written()
	}
	var e *Error
	if b.metadata, e = c.requestMetadata(); e != nil {
		return e
	}
	switch kind {
	case "BlockBlob":
	case "PageBlob":
		size, err := strconv.ParseInt(c.r.Header.Get("x-ms-blob-content-length"), 10, 64)
		if err != nil || size%512 != 0 || size > 1<<20 || len(c.body) != 0 {
			return errHeader
		}
		b.content = make([]byte, size)
		if text := c.r.Header.Get("x-ms-blob-sequence-number"); text != "" {
			if b.sequence, err = strconv.ParseInt(text, 10, 64); err != nil || b.sequence < 0 {
				return errHeader
			}
		}
	default:
		return errHeader
	}
	tags, err := url.ParseQuery(c.r.Header.Get("x-ms-tags"))
	if err != nil {
		return errHeader
	}
	b.tags = map[string]string{}
	for k, v := range tags {
		b.tags[k] = v[0]
	}
	c.touch(b)
	c.containers[c.container][c.name] = b
	c.describe(b)
	c.w.WriteHeader(http.StatusCreated)
	return nil
}

func (c *call) getBlob() *Error {
	b := c.find()
	if b == nil {
		return errNoBlob
	}
	c.describe(b)
	h := c.w.Header()
	h.Set("x-ms-blob-type", b.kind)
	h.Set("x-ms-creation-time", b.created.UTC().Format(http.TimeFormat))
	state, status, duration := b.held.describe()
	h.Set("x-ms-lease-state", state)
	h.Set("x-ms-lease-status", status)
	if duration != "" {
		h.Set("x-ms-lease-duration", duration)
	}
	for k, v := range b.metadata {
		h.Set("x-ms-meta-"+k, v)
	}
	if c.r.Method == http.MethodHead {
		c.w.WriteHeader(http.StatusOK)
		return nil
	}
	h.Set("Content-Type", "application/octet-stream")
	_, _ = c.w.Write(b.content) // a client that has gone away needs no answer
	return nil
}

func (c *call) deleteBlob() *Error {
	if _, e := c.writable(); e != nil {
		return e
	}
	delete(c.containers[c.container], c.name)
	c.w.WriteHeader(http.StatusAccepted)
	return nil
}

func (c *call) setMetadata() *Error {
	b, e := c.writable()
	if e != nil {
		return e
	}
	m, e := c.requestMetadata()
	if e != nil {
		return e
	}
	b.metadata = maps.Clone(m)
	b.held.written()
	c.touch(b)
	c.describe(b)
	c.w.WriteHeader(http.StatusOK)
	return nil
}

func (c *call) setSequence() *Error {
	b, e := c.writable()
	if e != nil {
		return e
	}
	if b.kind != "PageBlob" {
		return errBlobType
	}
	n, err := strconv.ParseInt(c.r.Header.Get("x-ms-blob-sequence-number"), 10, 64)
	switch action := c.r.Header.Get("x-ms-sequence-number-action"); {
	case action == "increment" && err != nil:
		b.sequence++
	case action == "max" && err == nil:
		b.sequence = max(b.sequence, n)
	case action == "update" && err == nil && n >= 0:
		b.sequence = n
	default:
		return errHeader
	}
	b.held.written()
	c.touch(b)
	c.describe(b)
	c.w.WriteHeader(http.StatusOK)
	return nil
}

// putPage replaces the pages of a range.
func (c *call) putPage() *Error {
	b, e := c.writable()
	if e != nil {
		return e
	}
	if b.kind != "PageBlob" {
		return errBlobType
	}
	for header, refused := range map[string]func(n int64) bool{
		"x-ms-if-sequence-number-le": func(n int64) bool { return b.sequence > n },
		"x-ms-if-sequence-number-lt": func(n int64) bool { return b.sequence >= n },
		"x-ms-if-sequence-number-eq": func(n int64) bool { return b.sequence != n },
	} {
		text := c.r.Header.Get(header)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return errHeader
		}
		if refused(n) {
			return errSequence
		}
	}
	var from, to int
	if _, err := fmt.Sscanf(c.r.Header.Get("x-ms-range"), "bytes=%d-%d", &from, &to); err != nil ||
		from%512 != 0 || to%512 != 511 || to >= len(b.content) || to-from+1 != len(c.body) {
		return &Error{http.StatusRequestedRangeNotSatisfiable, "InvalidPageRange"}
	}
	content := append([]byte(nil), b.content...)
	copy(content[from:], c.body)
	b.content = content
	b.held.written()
	c.touch(b)
	c.describe(b)
	c.w.WriteHeader(http.StatusCreated)
	return nil
}
