package consullock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// kind is what a request was for.
type kind int

const (
	reading  kind = iota // keys; nothing is in doubt when no answer comes
	writing              // keys
	sessions             // making, renewing and ending them
)

// errUnanswered: done or not done, nobody knows.
var errUnanswered = errors.New("no answer")

// texts is the meaning of what servers answer, found in a text that says more.
var texts = []struct {
	text  string
	class error
	hint  string
}{
	{"Permission denied", lease.ErrDenied, ""},
	{"ACL not found", lease.ErrDenied, ""},
	{"lacks permission", lease.ErrDenied, ""},
	{"Invalid Session TTL", lease.ErrMisconfigured, "set Options.MinTTL to the servers' session_ttl_min, or that setting lower"},
	{"Missing node registration", lease.ErrMisconfigured, "register the node of Options.Node in the catalog, or check its name"},
	{"Missing check", lease.ErrMisconfigured, "register the checks of Options.Checks on the node"},
	{"No path to datacenter", lease.ErrMisconfigured, "check the datacenter's name in the client's configuration"},
	{"cross datacenter lock", lease.ErrMisconfigured, "a lock is per datacenter: use an agent of the datacenter that the client's configuration names"},
	{"is in critical state", lease.ErrUnavailable, "a session is made again when the checks of Options.Checks pass"},
	{"No cluster leader", lease.ErrUnavailable, ""},
	{"Too many requests", lease.ErrUnavailable, "the agent limits the connections of one client: see limits.http_max_conns_per_client"},
}

// judge classifies an error.
func (s *Store) judge(ctx context.Context, k kind, err error) (class error, hint string) {
	class, hint = classify(ctx, err)
	switch {
	case errors.Is(class, errUnanswered) && k == reading:
		class = lease.ErrUnavailable
	case errors.Is(class, errUnanswered):
		class = lease.ErrInDoubt
	case errors.Is(class, lease.ErrDenied):
		hint = s.rule(k)
	}
	return class, hint
}

// rule is the line of a policy that a refused request asks for.
func (s *Store) rule(k kind) string {
	switch k {
	case sessions:
		if s.opt.Node != "" {
			return fmt.Sprintf("the ACL token needs the rule session %q { policy = \"write\" }", s.opt.Node)
		}
		return `the ACL token needs the rule session "<name of the agent's node>" { policy = "write" }`
	case writing:
		return fmt.Sprintf("the ACL token needs the rule key_prefix %q { policy = \"write\" }", s.opt.Prefix)
	case reading:
	}
	return fmt.Sprintf("the ACL token needs the rule key_prefix %q { policy = \"read\" }", s.opt.Prefix)
}

func classify(ctx context.Context, err error) (class error, hint string) {
	if _, ok := errors.AsType[*storeerr.UnsentError](err); ok {
		return lease.ErrUnavailable, ""
	}
	if refused, ok := errors.AsType[*statusError](err); ok {
		return byStatus(refused)
	}
	if ctx.Err() != nil {
		return errUnanswered, ""
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return lease.ErrUnavailable, "check the agent's address and that it runs"
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return lease.ErrUnavailable, "check the agent's address"
	}
	return errUnanswered, ""
}

func byStatus(e *statusError) (class error, hint string) {
	for _, t := range texts {
		if strings.Contains(e.text, t.text) {
			return t.class, t.hint
		}
	}
	switch {
	case e.code == http.StatusForbidden, e.code == http.StatusUnauthorized:
		return lease.ErrDenied, ""
	case e.code == http.StatusTooManyRequests:
		return lease.ErrUnavailable, ""
	case e.code >= http.StatusInternalServerError:
		return errUnanswered, ""
	}
	return lease.ErrMisconfigured, "check that the address is that of a Consul agent"
}

// fail makes the package's error of an error of the SDK.
func (s *Store) fail(ctx context.Context, op, name string, k kind, err error) error {
	class, hint := s.judge(ctx, k, err)
	e := &lease.Error{Op: op, Store: s.place, Name: name, Class: class, Hint: hint, Err: discreet(err)}
	if cause := lease.Cause(ctx); cause != nil { // what the SDK says of it may lend the error a second class
		e.Err = cause
	}
	return e
}

// refusal makes an error of a transaction that was certainly not done, and not for a reason of the protocol.
func (s *Store) refusal(op, name string, refused api.TxnErrors) error {
	e := &lease.Error{
		Op: op, Store: s.place, Name: name, Class: lease.ErrUnavailable, Err: errors.New(scrub(refused[0].What)),
	}
	if says(refused, denials...) {
		e.Class, e.Hint = lease.ErrDenied, s.rule(writing)
	}
	return e
}

func (s *Store) refusedRead(op, name string, refused api.TxnErrors) error {
	err := s.refusal(op, name, refused)
	if e, ok := errors.AsType[*lease.Error](err); ok && errors.Is(e.Class, lease.ErrDenied) {
		e.Hint = s.rule(reading)
	}
	return err
}

// What transactions say that were refused for a missing right, and because a key is not as it was seen.
var (
	denials = []string{"Permission denied", "ACL not found", "lacks permission"}
	changes = []string{"index check", "check index", `" exists`} // of a key that exists, or does not
)

// says tells whether one of the reasons has one of the texts.
func says(refused api.TxnErrors, texts ...string) bool {
	for _, e := range refused {
		for _, text := range texts {
			if strings.Contains(e.What, text) {
				return true
			}
		}
	}
	return false
}

// concerns tells whether the reasons are about one of the operations.
func concerns(refused api.TxnErrors, ops ...int) bool {
	for _, e := range refused {
		if slices.Contains(ops, e.OpIndex) {
			return true
		}
	}
	return false
}

// idForm is the form of the ids of sessions, and of ACL tokens and their accessors.
const idForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"

// scrub takes the ids out of a text, which the service repeats in its errors.
func scrub(text string) string {
	var b strings.Builder
	for text != "" {
		if startsWithID(text) {
			b.WriteString("<id>")
			text = text[len(idForm):]
			continue
		}
		b.WriteByte(text[0])
		text = text[1:]
	}
	return b.String()
}

func startsWithID(text string) bool {
	if len(text) < len(idForm) {
		return false
	}
	for i := range len(idForm) {
		hyphen := idForm[i] == '-'
		if c := text[i]; hyphen != (c == '-') || !hyphen && !isHex(c) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }

// discreet is err with a text that shows no session: neither in the URL that failed connections repeat nor in an answer.
func discreet(err error) error {
	text := err.Error()
	if u, ok := errors.AsType[*url.Error](err); ok {
		text = u.Err.Error()
	}
	return &storeerr.ToldError{Text: scrub(text), Err: err}
}

func (s *Store) lost(op, name string, why error) error {
	return &lease.Error{Op: op, Store: s.place, Name: name, Class: lease.ErrLost, Err: why}
}

func (s *Store) conflict(op, name string, why error) error {
	return &lease.Error{Op: op, Store: s.place, Name: name, Class: lease.ErrConflict, Err: why}
}

func (s *Store) closedError(op, name string) error {
	return &lease.Error{Op: op, Store: s.place, Name: name, Class: lease.ErrClosed}
}

func (s *Store) foreign(op, name string, why error) error {
	return &lease.Error{
		Op: op, Store: s.place, Name: name, Class: lease.ErrMisconfigured, Err: why,
		Hint: "delete the keys of this lock while nobody holds it, or use a prefix for locks alone",
	}
}
