package functiontest

import (
	"net"
	"net/http"
	"syscall"
)

// Refused is the network to a service that nobody listens for.
type Refused struct{}

// RoundTrip implements http.RoundTripper.
func (Refused) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}
