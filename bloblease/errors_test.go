package bloblease_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/lease"
)

// failing answers every request of one kind with a refusal; an empty kind stands for all.
func failing(kind string, status int, code string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if kind != "" && word(r) != kind {
				return next.RoundTrip(r)
			}
			return answer(r, status, code), nil
		})
	}
}

// refused makes a store whose requests of one kind are refused. What went before was not.
func (s *service) refused(t *testing.T, kind string, status int, code string) *bloblease.Store {
	t.Helper()
	st, err := bloblease.New(s.sdk(t, failing(kind, status, code)), nil)
	require.NoError(t, err)
	return st
}

// TestAZ05_WhatEachRefusalMeans is the meaning of the service's refusals, by what was refused.
func TestAZ05_WhatEachRefusalMeans(t *testing.T) {
	none := errors.New("success")
	for _, tc := range []struct {
		kind   string
		status int
		code   string
		want   error
		says   string
	}{
		{"acquire", 409, "LeaseAlreadyPresent", lease.ErrHeld, ""},
		{"acquire", 409, "LeaseIsBreakingAndCannotBeAcquired", lease.ErrHeld, ""},
		{"acquire", 412, "ConditionNotMet", lease.ErrHeld, ""}, // overtaken by another claim
		{"create", 412, "LeaseIdMissing", lease.ErrHeld, ""},
		{"create", 409, "BlobAlreadyExists", lease.ErrHeld, ""}, // the first ever race, lost
		{"head", 404, "ContainerNotFound", lease.ErrMisconfigured, "create the container"},
		{"head", 404, "BlobNotFound", none, ""},
		{"create", 409, "BlobImmutableDueToPolicy", lease.ErrMisconfigured, "immutability"},
		{"create", 409, "ContainerBeingDeleted", lease.ErrUnavailable, "deleted"},
		{"create", 400, "BlobTypeNotSupported", lease.ErrMisconfigured, "MetadataTokens"},
		{"create", 409, "FeatureNotYetSupportedForHierarchicalNamespaceAccounts", lease.ErrMisconfigured, "MetadataTokens"},
		{"create", 403, "AuthorizationPermissionMismatch", lease.ErrDenied, "Storage Blob Data Contributor"},
		{"head", 403, "AuthenticationFailed", lease.ErrDenied, "clock"},
		{"head", 401, "InvalidAuthenticationInfo", lease.ErrDenied, "token"},
		{"head", 403, "SomethingNew", lease.ErrDenied, "role"},
		{"head", 503, "ServerBusy", lease.ErrUnavailable, "throttled"},
		{"create", 503, "ServerBusy", lease.ErrUnavailable, "throttled"},
		{"acquire", 503, "ServerBusy", lease.ErrUnavailable, "throttled"},
		{"acquire", 500, "OperationTimedOut", lease.ErrInDoubt, ""},
		{"acquire", 500, "InternalError", lease.ErrInDoubt, ""},
		{"head", 500, "InternalError", lease.ErrUnavailable, ""},
		{"acquire", 409, "SomethingNew", lease.ErrUnavailable, ""},
		{"acquire", 400, "SomethingNew", lease.ErrMisconfigured, "blob service"},
		{"acquire", 408, "SomethingNew", lease.ErrInDoubt, ""}, // a gateway's

		{"renew", 409, "LeaseIdMismatchWithLeaseOperation", lease.ErrLost, ""},
		{"renew", 409, "LeaseIsBrokenAndCannotBeRenewed", lease.ErrLost, ""},
		{"renew", 409, "LeaseNotPresentWithLeaseOperation", lease.ErrLost, ""},
		{"renew", 404, "BlobNotFound", lease.ErrLost, ""},
		{"renew", 404, "ContainerNotFound", lease.ErrLost, ""},
		{"renew", 404, "SomethingNew", lease.ErrLost, ""},
		{"renew", 412, "SomethingNew", lease.ErrLost, ""},
		{"renew", 503, "ServerBusy", lease.ErrUnavailable, "throttled"},
		{"renew", 500, "OperationTimedOut", lease.ErrInDoubt, ""},
		{"renew", 403, "AuthorizationFailure", lease.ErrDenied, "network rules"},
		{"renew", 401, "InvalidAuthenticationInfo", lease.ErrDenied, ""},
		{"renew", 409, "SomethingNew", lease.ErrUnavailable, ""}, // no proof of a loss

		{"note", 412, "LeaseIdMissing", lease.ErrLost, ""},
		{"note", 412, "LeaseIdMismatchWithBlobOperation", lease.ErrLost, ""},
		{"note", 412, "LeaseNotPresentWithBlobOperation", lease.ErrLost, ""},
		{"note", 412, "LeaseLost", lease.ErrLost, ""},
		{"note", 404, "BlobNotFound", lease.ErrLost, ""},
		{"note", 503, "ServerBusy", lease.ErrUnavailable, ""},

		{"release", 409, "LeaseIdMismatchWithLeaseOperation", lease.ErrLost, ""}, // still held, so by a stranger
		{"release", 404, "BlobNotFound", lease.ErrLost, ""},
		{"release", 500, "InternalError", lease.ErrInDoubt, ""},
	} {
		t.Run(fmt.Sprint(tc.kind, " ", tc.status, " ", tc.code), func(t *testing.T) {
			s := newService()
			st := s.refused(t, tc.kind, tc.status, tc.code)
			var err error
			switch tc.kind {
			case "renew", "note", "release":
				g := crash(t, s, "x")
				switch tc.kind {
				case "renew":
					_, err = st.Renew(t.Context(), g)
				case "note":
					_, err = st.Save(t.Context(), g, nil)
				default:
					err = st.Release(t.Context(), g, lease.Final{})
				}
			default:
				_, err = st.TryAcquire(t.Context(), request("x"))
			}
			if errors.Is(tc.want, none) {
				require.NoError(t, err)
				return
			}
			requireClass(t, err, tc.want)
			require.NotContains(t, err.Error(), "attempt-id")
			placed, ok := errors.AsType[*lease.Error](err)
			if !ok {
				return // a HeldError has no place
			}
			require.Contains(t, err.Error(), tc.says)
			require.Equal(t, "Azure container account/locks", placed.Store)
			require.Equal(t, "x", placed.Name)
			if tc.kind != "release" || !errors.Is(err, lease.ErrLost) { // that is told by what the lock is now
				require.Contains(t, err.Error(), tc.code)
				resp, ok := errors.AsType[*azcore.ResponseError](err)
				require.True(t, ok, "the SDK's error stays reachable")
				require.Equal(t, tc.code, resp.ErrorCode)
			}
		})
	}
}

// TestAZ05_Writes: guards and records.
func TestAZ05_Writes(t *testing.T) {
	for _, tc := range []struct {
		status int
		code   string
		guard  error
		record error
	}{
		{412, "LeaseIdMissing", lease.ErrLost, lease.ErrLost}, // somebody has leased the blob
		{404, "ContainerNotFound", lease.ErrMisconfigured, lease.ErrMisconfigured},
		{409, "BlobImmutableDueToPolicy", lease.ErrMisconfigured, lease.ErrMisconfigured},
		{403, "AuthorizationPermissionMismatch", lease.ErrDenied, lease.ErrDenied},
		{503, "ServerBusy", lease.ErrUnavailable, lease.ErrUnavailable},
		{500, "InternalError", lease.ErrInDoubt, lease.ErrInDoubt},
		{412, "ConditionNotMet", lease.ErrUnavailable, lease.ErrConflict}, // read and tried again and again
	} {
		t.Run(tc.code, func(t *testing.T) {
			s := newService()
			g, err := bloblease.NewGuard(s.sdk(t, failing("create", tc.status, tc.code)), nil)
			require.NoError(t, err)
			requireClass(t, g.Put(t.Context(), "k", nil, 7, "a"), tc.guard)
			_, err = s.refused(t, "create", tc.status, tc.code).Swap(t.Context(), lease.Record{Key: "k"}, nil, 0)
			requireClass(t, err, tc.record)
		})
	}
}

// requireClass checks that err is of one class and of no other.
func requireClass(t *testing.T, err, class error) {
	t.Helper()
	require.Error(t, err)
	for _, c := range []error{
		lease.ErrHeld, lease.ErrPassed, lease.ErrLost, lease.ErrReleased, lease.ErrStale, lease.ErrConflict, lease.ErrInvalid,
		lease.ErrDenied, lease.ErrMisconfigured, lease.ErrUnavailable, lease.ErrInDoubt, lease.ErrClosed,
	} {
		require.Equal(t, errors.Is(c, class), errors.Is(err, c), "class %q of: %v", c, err)
	}
}

func TestErrorsOfTheTransport(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for name, tc := range map[string]struct {
		err         error
		write, read error
	}{
		"connection refused": {dial, lease.ErrUnavailable, lease.ErrUnavailable},
		"no such host":       {&net.DNSError{Err: "no such host", Name: "account"}, lease.ErrUnavailable, lease.ErrUnavailable},
		"connection reset":   {&net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset")}, lease.ErrInDoubt, lease.ErrUnavailable},
		"cut":                {io.ErrUnexpectedEOF, lease.ErrInDoubt, lease.ErrUnavailable},
		"foreign certificate": {
			&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, lease.ErrMisconfigured, lease.ErrMisconfigured,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService()
			g := crash(t, s, "x")
			st, err := bloblease.New(s.sdk(t, func(http.RoundTripper) http.RoundTripper {
				return roundTripper(func(*http.Request) (*http.Response, error) { return nil, tc.err })
			}), nil)
			require.NoError(t, err)
			_, err = st.Inspect(t.Context(), "x")
			requireClass(t, err, tc.read)
			_, err = st.Renew(t.Context(), g)
			requireClass(t, err, tc.write)
		})
	}
	t.Run("the caller's context ends", func(t *testing.T) {
		s := newService()
		g := crash(t, s, "x")
		st := s.host(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := st.Renew(ctx, g)
		requireClass(t, err, lease.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, st.sent.take())
	})
}

// TestErrorsKeepSecrets: a failed connection repeats the URL, and a refused signature what was signed.
func TestErrorsKeepSecrets(t *testing.T) {
	var shown http.Header
	c, err := container.NewClientWithNoCredential("http://blob.invalid/account/locks?sv=2025&sig=c2VjcmV0", &container.ClientOptions{
		ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}, Transport: &http.Client{Transport: roundTripper(
			func(r *http.Request) (*http.Response, error) {
				if shown = canonical(r.Header); shown.Get("x-ms-lease-id") == "" {
					return nil, errors.New("cut")
				}
				resp := answer(r, http.StatusForbidden, "AuthenticationFailed")
				resp.Body = io.NopCloser(io.MultiReader(resp.Body, strings.NewReader("string to sign: "+shown.Get("x-ms-lease-id"))))
				return resp, nil
			})}},
	})
	require.NoError(t, err)
	st, err := bloblease.New(c, nil)
	require.NoError(t, err)
	require.Equal(t, "Azure container account/locks", st.Limits().Store)
	_, err = st.Inspect(t.Context(), "x")
	requireClass(t, err, lease.ErrUnavailable)
	require.NotContains(t, err.Error(), "c2VjcmV0")
	failed, ok := errors.AsType[*url.Error](err)
	require.True(t, ok, "and stays reachable")
	require.Contains(t, failed.URL, "c2VjcmV0")

	_, err = st.Renew(t.Context(), lease.Grant{Request: request("x"), Token: 7, Sent: lease.SystemClock(), Trust: bloblease.MinTTL})
	requireClass(t, err, lease.ErrDenied)
	require.NotContains(t, err.Error(), shown.Get("x-ms-lease-id"))
	require.NotContains(t, err.Error(), "c2VjcmV0")
}

// TestErrorsOfCredentials: what fails before anything is sent.
func TestErrorsOfCredentials(t *testing.T) {
	st, err := bloblease.New(tokenClient(t, newService(), func(context.Context) (azcore.AccessToken, error) {
		return azcore.AccessToken{}, credentialError{errors.New("no identity is assigned")}
	}), nil)
	require.NoError(t, err)
	_, err = st.TryAcquire(t.Context(), request("x"))
	requireClass(t, err, lease.ErrDenied)
	require.ErrorContains(t, err, "no identity is assigned")
}

type credentialError struct{ error }

func (credentialError) NonRetriable() {}

func TestBadConfiguration(t *testing.T) {
	_, err := bloblease.New(nil, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = bloblease.NewGuard(nil, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	c := newService().sdk(t, nil)
	for _, prefix := range []string{"/a", "a//b", "a b", "a.b", "ä", string(make([]byte, 300))} {
		_, err = bloblease.New(c, &bloblease.Options{Prefix: prefix})
		require.ErrorIs(t, err, lease.ErrInvalid, "%q", prefix)
		_, err = bloblease.NewGuard(c, &bloblease.GuardOptions{Prefix: prefix})
		require.ErrorIs(t, err, lease.ErrInvalid, "%q", prefix)
	}
}

// TestMisconfigured: each says what to do, and nothing is tried again.
func TestMisconfigured(t *testing.T) {
	for name, tc := range map[string]struct {
		bring func(t *testing.T, s *service)
		says  string
	}{
		"no such container": {func(_ *testing.T, s *service) { *s = service{Service: blobfake.New("other")} }, "create the container"},
		"no page blobs":     {func(_ *testing.T, s *service) { s.NoPageBlobs = true }, "set Options.MetadataTokens"},
		"a blob of another kind": {func(t *testing.T, s *service) {
			t.Helper()
			_, err := s.sdk(t, nil).NewBlockBlobClient("cloudlease/locks/x").UploadBuffer(t.Context(), []byte("v"), &blockblob.UploadBufferOptions{})
			require.NoError(t, err)
		}, "BlockBlob, not a PageBlob"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService()
				tc.bring(t, s)
				h := s.host(t, nil)
				_, err := h.client(t, nil).Acquire(t.Context(), "x")
				requireClass(t, err, lease.ErrMisconfigured)
				require.ErrorContains(t, err, tc.says)
				require.Regexp(t, "^head( create)?$", h.sent.take(), "no retry of what cannot be mended")
			})
		})
	}
	t.Run("no page blobs, with MetadataTokens", func(t *testing.T) {
		s := newService()
		s.NoPageBlobs = true
		g, err := s.host(t, &bloblease.Options{MetadataTokens: true}).TryAcquire(t.Context(), request("x"))
		require.NoError(t, err)
		require.NotZero(t, g.Token)
	})
}
