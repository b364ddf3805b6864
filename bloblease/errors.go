package bloblease

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// kind is what a request was for. The same refusal means another thing to who wants a lock and to who has it.
type kind int

const (
	taking  kind = iota // claims and leases of an acquire, and operators' requests
	holding             // renewals, releases and writes under a lease
	writing             // records and guarded blobs
	reading
)

// verdict is what a refusal means.
type verdict struct {
	taking, holding, writing error
	hint                     string
}

// Not from the service: what a refusal means where the class of an error depends on more.
var (
	// errChanged: the blob is not as it was seen; look again.
	errChanged = fmt.Errorf("%w: the blob changed since it was read", lease.ErrConflict)
	// errUnanswered: done or not done, nobody knows; a read was not done.
	errUnanswered = errors.New("no answer")
)

func same(class error, hint string) verdict { return verdict{class, class, class, hint} }

const (
	hintRole     = "give the identity the role Storage Blob Data Contributor on the container, and let the account's network rules pass this host"
	hintCreate   = "create the container, or check the names of account and container"
	hintPage     = "this account has no page blobs: set Options.MetadataTokens"
	hintKind     = "another blob has this name: use a container or a prefix for locks alone"
	hintPolicy   = "locks are written again and again: use a container without an immutability policy"
	hintEndpoint = "check that the URL is that of a blob service"
)

// codes is the meaning of the refusals that the used operations document. Codes that are not here go by their status.
var codes = map[string]verdict{
	// Somebody has the lease, or our lease is not the blob's any more.
	"LeaseAlreadyPresent":                {lease.ErrHeld, lease.ErrLost, lease.ErrLost, ""},
	"LeaseIsBreakingAndCannotBeAcquired": {lease.ErrHeld, lease.ErrLost, lease.ErrLost, ""},
	"LeaseIdMissing":                     {lease.ErrHeld, lease.ErrLost, lease.ErrLost, ""},
	"LeaseIdMismatchWithLeaseOperation":  {lease.ErrHeld, lease.ErrLost, lease.ErrLost, ""},
	"LeaseIdMismatchWithBlobOperation":   {lease.ErrHeld, lease.ErrLost, lease.ErrLost, ""},
	"LeaseIsBrokenAndCannotBeRenewed":    {errChanged, lease.ErrLost, lease.ErrLost, ""},
	"LeaseNotPresentWithLeaseOperation":  {errChanged, lease.ErrLost, lease.ErrLost, ""},
	"LeaseNotPresentWithBlobOperation":   {errChanged, lease.ErrLost, lease.ErrLost, ""},
	"LeaseAlreadyBroken":                 {errChanged, lease.ErrLost, lease.ErrLost, ""},
	"LeaseLost":                          {errChanged, lease.ErrLost, lease.ErrLost, ""},
	// The blob is not as it was seen.
	"ConditionNotMet":               {errChanged, lease.ErrLost, errChanged, ""},
	"TargetConditionNotMet":         {errChanged, lease.ErrLost, errChanged, ""},
	"SequenceNumberConditionNotMet": {errChanged, lease.ErrLost, errChanged, ""},
	"BlobAlreadyExists":             {errChanged, lease.ErrLost, errChanged, ""},
	"BlobNotFound":                  {errChanged, lease.ErrLost, errChanged, ""},
	// The container or the account is not what it should be.
	"ContainerNotFound":        {lease.ErrMisconfigured, lease.ErrLost, lease.ErrMisconfigured, hintCreate},
	"ResourceNotFound":         {lease.ErrMisconfigured, lease.ErrLost, lease.ErrMisconfigured, hintCreate},
	"ContainerDisabled":        same(lease.ErrMisconfigured, "enable the container"),
	"BlobImmutableDueToPolicy": same(lease.ErrMisconfigured, hintPolicy),
	"BlobTypeNotSupported":     same(lease.ErrMisconfigured, hintPage),
	"FeatureNotYetSupportedForHierarchicalNamespaceAccounts": same(lease.ErrMisconfigured, hintPage),
	"InvalidBlobType":        same(lease.ErrMisconfigured, hintKind),
	"BlobArchived":           same(lease.ErrMisconfigured, "rehydrate the blob, and exclude locks from lifecycle rules"),
	"UnsupportedHeader":      same(lease.ErrMisconfigured, hintEndpoint),
	"UnsupportedHttpVerb":    same(lease.ErrMisconfigured, hintEndpoint),
	"InvalidHeaderValue":     same(lease.ErrMisconfigured, hintEndpoint),
	"InvalidUri":             same(lease.ErrMisconfigured, hintEndpoint),
	"InvalidResourceName":    same(lease.ErrMisconfigured, "check the container's name"),
	"OutOfRangeInput":        same(lease.ErrMisconfigured, "check the container's name"),
	"AccountIsDisabled":      same(lease.ErrMisconfigured, "enable the storage account"),
	"AccountBeingCreated":    same(lease.ErrUnavailable, "the storage account is being created"),
	"RequestBodyTooLarge":    same(lease.ErrInvalid, "the value is too large for one write"),
	"MetadataTooLarge":       same(lease.ErrMisconfigured, "the blob's metadata has more than 8 KB"),
	"SystemInUse":            same(lease.ErrUnavailable, ""),
	"FeatureVersionMismatch": same(lease.ErrMisconfigured, hintEndpoint),
	// The credentials or the network rules.
	"AuthenticationFailed":               same(lease.ErrDenied, "check the key or the signature, its expiry, and this host's clock"),
	"InvalidAuthenticationInfo":          same(lease.ErrDenied, "the access token is not accepted: check its tenant, audience and expiry"),
	"NoAuthenticationInformation":        same(lease.ErrDenied, "give the container client credentials"),
	"AuthorizationFailure":               same(lease.ErrDenied, hintRole),
	"AuthorizationPermissionMismatch":    same(lease.ErrDenied, hintRole),
	"InsufficientAccountPermissions":     same(lease.ErrDenied, hintRole),
	"AuthorizationProtocolMismatch":      same(lease.ErrDenied, "use https, or allow http in the signature"),
	"AuthorizationResourceTypeMismatch":  same(lease.ErrDenied, "allow the resource types container and object in the signature"),
	"AuthorizationServiceMismatch":       same(lease.ErrDenied, "allow the blob service in the signature"),
	"AuthorizationSourceIPMismatch":      same(lease.ErrDenied, "allow this host's address in the signature"),
	"KeyBasedAuthenticationNotPermitted": same(lease.ErrDenied, "this account takes no keys: use an identity"),
	"PublicAccessNotPermitted":           same(lease.ErrDenied, "give the container client credentials"),
	// Later, perhaps.
	"ServerBusy":            same(lease.ErrUnavailable, "the account is throttled"),
	"ContainerBeingDeleted": same(lease.ErrUnavailable, "the container is being deleted"),
	"OperationTimedOut":     same(errUnanswered, ""),
	"InternalError":         same(errUnanswered, ""),
}

func (v verdict) of(k kind) error {
	switch k {
	case holding:
		return v.holding
	case writing:
		return v.writing
	case taking, reading:
	}
	return v.taking
}

// judge classifies an error of the SDK. errChanged and lease.ErrHeld are left to the caller to explain.
func judge(ctx context.Context, k kind, err error) (class error, hint string) {
	class, hint = classify(ctx, k, err)
	if !errors.Is(class, errUnanswered) {
		return class, hint
	}
	if k == reading {
		return lease.ErrUnavailable, hint
	}
	return lease.ErrInDoubt, hint
}

func classify(ctx context.Context, k kind, err error) (class error, hint string) {
	if errors.Is(err, errChanged) { // this package's own finding
		return errChanged, ""
	}
	if _, ok := errors.AsType[*storeerr.UnsentError](err); ok {
		return lease.ErrUnavailable, ""
	}
	if resp, ok := errors.AsType[*azcore.ResponseError](err); ok && resp.StatusCode != 0 {
		if v, known := codes[resp.ErrorCode]; known {
			return v.of(k), v.hint
		}
		return byStatus(k, resp.StatusCode)
	}
	if ctx.Err() != nil {
		return errUnanswered, ""
	}
	if _, ok := errors.AsType[unmendable](err); ok {
		return lease.ErrDenied, "check the credentials that the container client was given"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return lease.ErrMisconfigured, "check the endpoint, and which certificate authorities this host trusts"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return lease.ErrUnavailable, "check the endpoint and the network"
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return lease.ErrUnavailable, "check the account's name and the network"
	}
	return errUnanswered, ""
}

// unmendable is how the SDK marks an error of a credential: nothing was sent, and trying again does not help. (The type itself is
// in a module that a user of keys need not link.)
type unmendable interface {
	error
	NonRetriable()
}

// byStatus is the meaning of a code that nobody documented.
func byStatus(k kind, status int) (class error, hint string) {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return lease.ErrDenied, hintRole
	case status == http.StatusNotFound && k == holding, status == http.StatusPreconditionFailed && k == holding:
		return lease.ErrLost, ""
	case status == http.StatusPreconditionFailed:
		return errChanged, ""
	case status == http.StatusTooManyRequests:
		return lease.ErrUnavailable, ""
	case status == http.StatusConflict: // a refusal that is not known is no proof of a loss
		return lease.ErrUnavailable, ""
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout:
		return errUnanswered, ""
	case status >= http.StatusBadRequest:
		return lease.ErrMisconfigured, hintEndpoint
	}
	return errUnanswered, "" // an answer that could not be read
}

// fail makes the package's error of an error of the SDK.
func (s *Store) fail(ctx context.Context, op, name string, k kind, err error) error {
	return failAt(ctx, s.place, op, name, k, err)
}

func failAt(ctx context.Context, place, op, name string, k kind, err error) error {
	class, hint := judge(ctx, k, err)
	e := &lease.Error{Op: op, Store: place, Name: name, Class: class, Hint: hint, Err: discreet(err)}
	if cause := lease.Cause(ctx); cause != nil && !errors.Is(err, cause) { // the SDK does not know it
		e.Err = fmt.Errorf("%w: %w", cause, e.Err)
	}
	switch {
	case errors.Is(class, errChanged):
		e.Class = lease.ErrConflict
	case errors.Is(class, lease.ErrHeld):
		e.Class = lease.ErrHeld
	}
	return e
}

// discreet is err with a text that shows neither a lease's id, which the service repeats when it refuses a signature, nor the
// signature of a URL, which failed connections repeat.
func discreet(err error) error {
	if resp, ok := errors.AsType[*azcore.ResponseError](err); ok {
		code := resp.ErrorCode
		if code == "" {
			code = http.StatusText(resp.StatusCode)
		}
		return &storeerr.ToldError{Text: fmt.Sprintf("%d %s", resp.StatusCode, code), Err: err}
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return &storeerr.ToldError{Text: u.Err.Error(), Err: err}
	}
	return err
}

// leaseOver tells whether err says that a lease is over, and not only that the blob is not as it was seen.
func leaseOver(err error) bool {
	resp, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && strings.HasPrefix(resp.ErrorCode, "Lease") || missing(err)
}

// missing tells whether err says that there is no such blob, as opposed to no such container.
func missing(err error) bool {
	resp, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && resp.StatusCode == http.StatusNotFound && resp.ErrorCode == "BlobNotFound"
}

// made tells whether err is one of this package's already, and not only wraps one, as the cause of a context can.
func made(err error) (*lease.Error, bool) {
	e, ok := err.(*lease.Error) //nolint:errorlint // the error itself
	return e, ok
}

func (s *Store) lost(op, name string, why error) error {
	return &lease.Error{Op: op, Store: s.place, Name: name, Class: lease.ErrLost, Err: why}
}

func (s *Store) foreign(op, name string, why error) error {
	return &lease.Error{Op: op, Store: s.place, Name: name, Class: lease.ErrMisconfigured, Err: why, Hint: hintKind +
		"; RaiseFloor replaces metadata that cannot be read"}
}
