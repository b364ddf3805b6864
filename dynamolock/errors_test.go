package dynamolock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

func request(name string) lease.Request {
	return lease.Request{Name: name, Holder: "me", TTL: 3 * time.Second, Attempt: "attempt-id", Since: lease.SystemClock()}
}

// answer is an answer of DynamoDB's.
func answer(r *http.Request, status int, body string) *http.Response {
	h := http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}}
	return &http.Response{
		StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

func failing(status int, code, message string) func(http.RoundTripper) http.RoundTripper {
	return func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			return answer(r, status, `{"__type":"com.amazonaws.dynamodb.v20120810#`+code+`","message":"`+message+`"}`), nil
		})
	}
}

// TestErrorClasses is what every refusal of the service means, for a write (a renewal) and for a read.
func TestErrorClasses(t *testing.T) {
	for _, tc := range []struct {
		status       int
		code         string
		write, read  error
		mustName     string
		mustNotLeak  string
		messageInput string
	}{
		{400, "AccessDeniedException", lease.ErrDenied, lease.ErrDenied, "locks", "", "not authorized to perform: dynamodb:UpdateItem"},
		{400, "AccessDeniedException", lease.ErrDenied, lease.ErrDenied, "key", "", "KMS key access denied"},
		{400, "UnrecognizedClientException", lease.ErrDenied, lease.ErrDenied, "credentials", "", "bad token"},
		{400, "ExpiredTokenException", lease.ErrDenied, lease.ErrDenied, "renew the credentials", "", "expired"},
		{400, "MissingAuthenticationToken", lease.ErrDenied, lease.ErrDenied, "credentials", "", ""},
		{403, "InvalidSignatureException", lease.ErrDenied, lease.ErrDenied, "clock", "c2VjcmV0", "x-amz-security-token:c2VjcmV0"},
		{400, "IncompleteSignature", lease.ErrDenied, lease.ErrDenied, "credentials", "c2VjcmV0", "x-amz-security-token:c2VjcmV0"},
		{403, "SomethingNew", lease.ErrDenied, lease.ErrDenied, "credentials", "", ""},
		{400, "ResourceNotFoundException", lease.ErrMisconfigured, lease.ErrMisconfigured, "create table locks", "", "no such table"},
		{400, "ValidationException", lease.ErrMisconfigured, lease.ErrMisconfigured, "hash key", "", "key element does not match the schema"},
		{404, "UnknownOperationException", lease.ErrMisconfigured, lease.ErrMisconfigured, "endpoint", "", ""},
		{400, "ThrottlingException", lease.ErrUnavailable, lease.ErrUnavailable, "throttled", "", ""},
		{400, "ProvisionedThroughputExceededException", lease.ErrUnavailable, lease.ErrUnavailable, "capacity", "", ""},
		{400, "RequestLimitExceeded", lease.ErrUnavailable, lease.ErrUnavailable, "limit", "", ""},
		{500, "InternalServerError", lease.ErrInDoubt, lease.ErrUnavailable, "", "", ""},
		{503, "ServiceUnavailable", lease.ErrInDoubt, lease.ErrUnavailable, "", "", ""},
		{429, "TooMany", lease.ErrInDoubt, lease.ErrUnavailable, "", "", ""},
	} {
		t.Run(tc.code, func(t *testing.T) {
			s := &service{handler: emulator.NewEmbedded()}
			st, err := dynamolock.New(s.sdk(failing(tc.status, tc.code, tc.messageInput)), table, nil)
			require.NoError(t, err)
			_, read := st.Inspect(t.Context(), "x")
			_, write := st.Renew(t.Context(), lease.Grant{Request: request("x"), Token: 7})
			for _, c := range []struct{ got, want error }{{read, tc.read}, {write, tc.write}} {
				requireClass(t, c.got, c.want)
				require.Contains(t, c.got.Error(), tc.mustName)
				require.Contains(t, c.got.Error(), tc.code)
				require.NotContains(t, c.got.Error(), "attempt-id")
				if tc.mustNotLeak != "" {
					require.NotContains(t, c.got.Error(), tc.mustNotLeak)
				}
				api, ok := errors.AsType[smithy.APIError](c.got)
				require.True(t, ok, "the SDK's error stays reachable")
				require.Equal(t, tc.code, api.ErrorCode())
				placed, ok := errors.AsType[*lease.Error](c.got)
				require.True(t, ok)
				require.Equal(t, "DynamoDB table locks", placed.Store)
				require.Equal(t, "x", placed.Name)
			}
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
		"connection reset":   {&net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset")}, lease.ErrInDoubt, lease.ErrUnavailable},
		"cut":                {io.ErrUnexpectedEOF, lease.ErrInDoubt, lease.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{handler: emulator.NewEmbedded()}
			st, err := dynamolock.New(s.sdk(func(http.RoundTripper) http.RoundTripper {
				return roundTripper(func(*http.Request) (*http.Response, error) { return nil, tc.err })
			}), table, nil)
			require.NoError(t, err)
			_, err = st.Inspect(t.Context(), "x")
			requireClass(t, err, tc.read)
			_, err = st.Renew(t.Context(), lease.Grant{Request: request("x"), Token: 7})
			requireClass(t, err, tc.write)
		})
	}
	for _, status := range []int{http.StatusOK, http.StatusBadRequest, http.StatusForbidden} {
		t.Run(fmt.Sprint("the answer breaks off, ", status), func(t *testing.T) {
			s := &service{handler: emulator.NewEmbedded()}
			st, err := dynamolock.New(s.sdk(func(http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					body := io.MultiReader(strings.NewReader(`{"__type":"`), iotest.ErrReader(&net.OpError{Op: "read", Err: net.ErrClosed}))
					return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body), Request: r}, nil
				})
			}), table, nil)
			require.NoError(t, err)
			_, err = st.Inspect(t.Context(), "x")
			requireClass(t, err, lease.ErrUnavailable)
			_, err = st.Renew(t.Context(), lease.Grant{Request: request("x"), Token: 7})
			requireClass(t, err, lease.ErrInDoubt)
		})
	}
	t.Run("the caller's context ends", func(t *testing.T) {
		s := newService(t)
		st := s.host(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := st.Renew(ctx, lease.Grant{Request: request("x"), Token: 7})
		requireClass(t, err, lease.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, st.sent.take())
	})
}

// TestErrorsBeforeAnythingIsSent: what the SDK itself refuses.
func TestErrorsBeforeAnythingIsSent(t *testing.T) {
	noCredentials := dynamodb.New(dynamodb.Options{
		Region: "eu-west-1", BaseEndpoint: aws.String("http://127.0.0.1:1"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("no role is attached")
		}),
	})
	st, err := dynamolock.New(noCredentials, table, nil)
	require.NoError(t, err)
	_, err = st.Inspect(t.Context(), "x")
	requireClass(t, err, lease.ErrDenied)
	require.ErrorContains(t, err, "no role is attached")

	noRegion := dynamodb.New(dynamodb.Options{Credentials: aws.AnonymousCredentials{}})
	st, err = dynamolock.New(noRegion, table, nil)
	require.NoError(t, err)
	_, err = st.Inspect(t.Context(), "x")
	requireClass(t, err, lease.ErrMisconfigured)
	require.ErrorContains(t, err, "region")

	refusing := dynamodb.New(dynamodb.Options{
		Region: "eu-west-1", BaseEndpoint: aws.String("http://127.0.0.1:1"), Credentials: aws.AnonymousCredentials{},
	})
	st, err = dynamolock.New(refusing, table, nil)
	require.NoError(t, err)
	_, err = st.TryAcquire(t.Context(), request("x"))
	requireClass(t, err, lease.ErrUnavailable)
	require.ErrorContains(t, err, "check the endpoint")
}

func TestBadConfiguration(t *testing.T) {
	_, err := dynamolock.New(nil, table, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = dynamolock.New(emulator.Client("", nil), "", nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = dynamolock.NewGuard(nil, table, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = dynamolock.NewGuard(emulator.Client("", nil), "", nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	st, err := dynamolock.New(emulator.Client("", nil), table, nil)
	require.NoError(t, err)
	_, err = lease.New(st, &lease.Options{TTL: time.Second})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "2s to 1h0m0s")
}

func TestMissingTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{handler: emulator.NewEmbedded()}
		h := s.host(t, nil)
		_, err := h.client(t, nil).Acquire(t.Context(), "x")
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "create table locks")
		require.Equal(t, "R", h.sent.take(), "no retry of what cannot be mended")
	})
}

// TestServiceWithoutDate: the time cannot be learned, so nothing is written.
func TestServiceWithoutDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		c := &counter{}
		st, err := dynamolock.New(s.sdk(func(next http.RoundTripper) http.RoundTripper {
			return c.wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil {
					resp.Header.Del("Date")
				}
				return resp, err
			}))
		}), table, nil)
		require.NoError(t, err)
		_, err = st.TryAcquire(t.Context(), request("x"))
		requireClass(t, err, lease.ErrMisconfigured)
		require.ErrorContains(t, err, "Date")
		require.Equal(t, "R", c.take())
	})
}
