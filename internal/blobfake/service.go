package blobfake

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Service is an http.Handler. Its containers are addressed as http://host/account/container/blob. It is safe for concurrent
// use; every request is one atomic step.
type Service struct {
	// NoPageBlobs makes the account one that has block blobs only.
	NoPageBlobs bool
	// Azurite makes it do what Azurite 3.37 does otherwise than the service: a lease that has expired is renewed whatever id is
	// sent, also after its blob was written, and the answer has the id of the lease; conditions are checked before leases;
	// a leased blob that is created again exists, rather than lacking a lease id.
	Azurite bool
	// LeaseFirst makes operations on leases look at the lease before the conditions. The service's documentation does not say
	// in which order it looks.
	LeaseFirst bool
	// PageSize is the largest page of a listing, default 5000 as the service has it.
	PageSize int

	requests   atomic.Int64
	mu         sync.Mutex
	containers map[string]map[string]*blob
	writes     int64 // makes ETags unique
}

// New makes a service with the named containers.
func New(containers ...string) *Service {
	s := &Service{PageSize: 5000, containers: map[string]map[string]*blob{}}
	for _, c := range containers {
		s.containers[c] = map[string]*blob{}
	}
	return s
}

// Delete removes a blob as an operator would who breaks its lease first. It tells whether there was one.
func (s *Service) Delete(container, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.containers[container][name]
	delete(s.containers[container], name)
	return ok
}

// Recreate deletes a container with all that is in it, leased or not, and makes it anew.
func (s *Service) Recreate(container string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers[container] = map[string]*blob{}
}

// Snapshot copies a container, for a later Restore: a failover to a copy that is older.
func (s *Service) Snapshot(container string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := map[string]any{}
	for name, b := range s.containers[container] {
		kept := *b
		snap[name] = &kept
	}
	return snap
}

// Restore puts a container back to a Snapshot.
func (s *Service) Restore(container string, snap map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers[container] = map[string]*blob{}
	for name, b := range snap {
		if kept, ok := b.(*blob); ok {
			again := *kept
			s.containers[container][name] = &again
		}
	}
}

// Error is an answer that refuses.
type Error struct {
	Status int
	Code   string
}

func (e *Error) Error() string { return fmt.Sprintf("%d %s", e.Status, e.Code) }

// WriteError answers with e as the service does. A HEAD has no body, so that the code is in a header.
func WriteError(w http.ResponseWriter, r *http.Request, e *Error) {
	w.Header().Set("x-ms-error-code", e.Code)
	if r.Method == http.MethodHead {
		w.WriteHeader(e.Status)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(e.Status)
	_, _ = io.WriteString(w, xml.Header) // a client that has gone away needs no answer
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}{Code: e.Code, Message: "refused: " + e.Code})
}

var (
	errUnknown        = &Error{http.StatusBadRequest, "InvalidInput"}
	errNoContainer    = &Error{http.StatusNotFound, "ContainerNotFound"}
	errContainerThere = &Error{http.StatusConflict, "ContainerAlreadyExists"}
	errNoBlob         = &Error{http.StatusNotFound, "BlobNotFound"}
	errBlobThere      = &Error{http.StatusConflict, "BlobAlreadyExists"}
	errBlobType       = &Error{http.StatusConflict, "InvalidBlobType"}
	errNoPageBlobs    = &Error{http.StatusBadRequest, "BlobTypeNotSupported"}
	errCondition      = &Error{http.StatusPreconditionFailed, "ConditionNotMet"}
	errSequence       = &Error{http.StatusPreconditionFailed, "SequenceNumberConditionNotMet"}
	errHeader         = &Error{http.StatusBadRequest, "InvalidHeaderValue"}
	errMetadata       = &Error{http.StatusBadRequest, "MetadataTooLarge"}
)

// call is one request.
type call struct {
	*Service
	w         http.ResponseWriter
	r         *http.Request
	container string
	name      string
	now       time.Time
	body      []byte
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone away
	}
	c := &call{Service: s, w: w, r: canonical(r), now: time.Now(), body: body} //nolint:forbidigo // a service has a clock of its own
	parts := strings.SplitN(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/", 3)
	for i := range parts {
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			WriteError(w, r, &Error{http.StatusBadRequest, "InvalidUri"})
			return
		}
	}
	if len(parts) > 1 {
		c.container = parts[1]
	}
	if len(parts) > 2 {
		c.name = parts[2]
	}
	w.Header().Set("x-ms-version", "2025-01-05")
	w.Header().Set("x-ms-request-id", fmt.Sprintf("00000000-0000-0000-0000-%012x", s.requests.Add(1)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := c.route(); e != nil {
		WriteError(w, r, e)
	}
}

// canonical is r with the names of its headers as a server has them. The SDK writes them in lower case, and not every transport
// changes that on the way.
func canonical(r *http.Request) *http.Request {
	h := http.Header{}
	for k, values := range r.Header {
		for _, v := range values {
			h.Add(k, v)
		}
	}
	r = r.WithContext(r.Context())
	r.Header = h
	return r
}

func (c *call) route() *Error {
	what := c.r.URL.Query().Get("comp")
	if c.r.URL.Query().Get("restype") == "container" {
		return c.routeContainer(what)
	}
	if _, ok := c.containers[c.container]; !ok {
		return errNoContainer
	}
	if c.name == "" {
		return errUnknown
	}
	switch c.r.Method + " " + what {
	case "PUT ":
		return c.putBlob()
	case "HEAD ", "GET ":
		return c.getBlob()
	case "DELETE ":
		return c.deleteBlob()
	case "PUT metadata":
		return c.setMetadata()
	case "PUT properties":
		return c.setSequence()
	case "PUT page":
		return c.putPage()
	case "PUT lease":
		return c.lease()
	case "GET tags":
		return c.getTags()
	}
	return errUnknown
}

func (c *call) routeContainer(what string) *Error {
	_, there := c.containers[c.container]
	switch {
	case c.r.Method == http.MethodPut && what == "":
		if there {
			return errContainerThere
		}
		c.containers[c.container] = map[string]*blob{}
		c.w.WriteHeader(http.StatusCreated)
		return nil
	case !there:
		return errNoContainer
	case c.r.Method == http.MethodDelete && what == "":
		delete(c.containers, c.container)
		c.w.WriteHeader(http.StatusAccepted)
		return nil
	case c.r.Method == http.MethodGet && what == "list":
		return c.list()
	}
	return errUnknown
}
