package main

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/functions/internal/environ"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
)

// config is what the function's environment says.
type config struct {
	settlement.Config
	leasePrefix    string      // LEASE_PREFIX
	paymentsPrefix string      // PAYMENTS_PREFIX
	resultsPrefix  string      // RESULTS_PREFIX
	consul         *api.Config // CONSUL_HTTP_ADDR, CONSUL_HTTP_TOKEN, CONSUL_DATACENTER, and what else the SDK reads, such as CONSUL_CACERT
}

// configure reads the environment and reports all that is wrong with it at once, by name.
func configure(getenv func(string) string) (config, error) {
	r := environ.New(getenv)
	c := config{
		Config:      settlement.Configure(r),
		leasePrefix: prefix(r, "LEASE_PREFIX"), paymentsPrefix: prefix(r, "PAYMENTS_PREFIX"), resultsPrefix: prefix(r, "RESULTS_PREFIX"),
	}
	// The SDK goes on without TLS, or without verifying, where it cannot read these.
	for _, name := range []string{"CONSUL_HTTP_SSL", "CONSUL_HTTP_SSL_VERIFY"} {
		if _, err := strconv.ParseBool(r.Or(name, "true")); err != nil {
			r.Wrong(name, "true or false")
		}
	}
	c.consul = api.DefaultConfig()
	c.consul.Address, c.consul.Token, c.consul.Datacenter = address(r), token(r), r.Get("CONSUL_DATACENTER")
	return c, r.Err()
}

// isFolders tells whether p is a path of keys with a '/' at its end.
func isFolders(p string) bool {
	other := func(c rune) bool {
		return !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' || c == '-' || c == '/')
	}
	return strings.HasSuffix(p, "/") && p[0] != '/' && !strings.Contains(p, "//") && !strings.ContainsFunc(p, other)
}

func prefix(r *environ.Reader, name string) string {
	p := r.Need(name)
	if p != "" && (len(p) > 200 || !isFolders(p)) {
		r.Wrong(name, "at most 200 letters, digits, '-', '_' and '/', with a '/' at the end, such as cloudlease/")
	}
	return p
}

// address is that of an agent and nothing more: a secret has its place in CONSUL_HTTP_TOKEN. A wrong one may hold a secret all
// the same, and is not repeated.
func address(r *environ.Reader) string {
	const name = "CONSUL_HTTP_ADDR"
	text := r.Need(name)
	full := text
	if !strings.Contains(text, "://") {
		full = "http://" + text
	}
	u, err := url.Parse(full)
	if text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		r.Fault(errors.New("the environment variable " + name + " is no address of an agent such as https://consul.internal:8501"))
	}
	return text
}

// token may be missing, where there are no ACLs or the SDK reads it from a file.
func token(r *environ.Reader) string {
	const name = "CONSUL_HTTP_TOKEN"
	text := r.Get(name)
	if strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) { // it would never get into a header
		r.Fault(errors.New("the environment variable " + name + " has spaces, line ends or other characters that no token has"))
	}
	return text
}
