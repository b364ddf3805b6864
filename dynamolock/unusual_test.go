package dynamolock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
)

// A healthy service, a client that has rested for an hour or so, the shortest TTL: acquire fails, because it writes with an
// interval that is wider than the TTL (2 s) but not wider than MaxWidth (3 s).
func TestShortestTTLAfterARest(t *testing.T) {
	for _, rest := range []int{40, 50, 60, 65, 70, 75, 80} {
		for _, ms := range []int{0, 500, 900} {
			rest, phase := time.Duration(rest)*time.Minute, time.Duration(ms)*time.Millisecond
			t.Run(fmt.Sprint(rest, phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newService(t)
					c := s.host(t, nil).client(t, &lease.Options{TTL: 2 * time.Second})
					time.Sleep(phase)
					l, err := c.TryAcquire(t.Context(), "x")
					require.NoError(t, err)
					require.NoError(t, l.Release(t.Context()))
					time.Sleep(rest - phase + 10*time.Millisecond)
					l, err = c.TryAcquire(t.Context(), "x")
					if err == nil {
						t.Logf("remaining: %v", time.Until(l.Deadline()))
						_ = l.Release(t.Context())
					}
					_ = c.Close(t.Context())
					require.NoError(t, err)
				})
			})
		}
	}
}

// "a waiter's look, at most 2 a second": with a wall clock that stands still (or is being slewed back) the service's time moves
// on by whole seconds only, and the waiter of a lock that is nearly dead looks at it every few milliseconds until then.
func TestWaiterWithAWallClockThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		time.Sleep(300 * time.Millisecond)
		crash(t, s, "x", 5*time.Second)
		clock := leasetest.NewClock()
		b := s.host(t, &dynamolock.Options{Clock: clock.Now})
		cb := b.client(t, &lease.Options{TTL: 3 * time.Second})
		clock.FreezeWall(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		counted := make(chan int)
		go func() {
			worst := 0
			for ctx.Err() == nil {
				time.Sleep(time.Second)
				worst = max(worst, len(b.sent.take()))
			}
			counted <- worst
		}()
		l, err := cb.Acquire(ctx, "x")
		if err == nil {
			_ = l.Release(t.Context())
		}
		time.Sleep(time.Second)
		cancel()
		worst := <-counted
		_ = cb.Close(t.Context())
		t.Logf("%v, at most %d requests in a second", err, worst)
		require.LessOrEqual(t, worst, 5)
	})
}

// "Within the clock's uncertainty of about a second": with a slow network it is three.
func TestDeletionWithinThreeSeconds(t *testing.T) {
	worst := time.Duration(0)
	for _, ms := range []int{1100, 1500, 2000, 2500, 2900} {
		gap := time.Duration(ms) * time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			s := newService(t)
			slow, err := newStoreOn(s, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Header.Get("X-Amz-Target") == "DynamoDB_20120810.GetItem" {
						time.Sleep(1900 * time.Millisecond) // on the way there
					}
					return next.RoundTrip(r)
				})
			})
			require.NoError(t, err)
			r := request("x")
			r.TTL = 10 * time.Second
			g, err := slow.TryAcquire(t.Context(), r)
			require.NoError(t, err)
			s.deleteItem(t, "x")
			time.Sleep(gap)
			again := try(t, s.host(t, nil), "x", fmt.Sprint(gap))
			if again.Token <= g.Token {
				worst = max(worst, gap)
			}
		})
	}
	require.LessOrEqual(t, worst, 1100*time.Millisecond, "the longest pause after which a token was not higher")
}

// A 408 of a load balancer is told as a wrong endpoint that trying again cannot mend; for a write it may have been done.
func TestClassRequestTimeout(t *testing.T) {
	s := &service{handler: emulator.NewEmbedded()}
	st, err := dynamolock.New(s.sdk(func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return answer(r, http.StatusRequestTimeout, ""), nil })
	}), table, nil)
	require.NoError(t, err)
	_, err = st.Renew(t.Context(), lease.Grant{Request: request("x"), Token: 7})
	requireClass(t, err, lease.ErrInDoubt)
}

// Codes that the SDK itself takes for throttling or for passing faults.
func TestClassOtherCodesOfThrottling(t *testing.T) {
	for _, code := range []string{"Throttling", "ThrottledException", "RequestThrottled", "RequestThrottledException", "TooManyRequestsException", "SlowDown", "RequestTimeout", "RequestTimeoutException", "LimitExceededException", "TransactionInProgressException"} {
		t.Run(code, func(t *testing.T) {
			s := &service{handler: emulator.NewEmbedded()}
			st, err := dynamolock.New(s.sdk(failing(400, code, "")), table, nil)
			require.NoError(t, err)
			_, err = st.Renew(t.Context(), lease.Grant{Request: request("x"), Token: 7})
			require.True(t, errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrInDoubt), "%v", err)
		})
	}
}

// The credentials' own service is out for a moment (IMDS, STS, ECS agent): a dial that fails, told as "access denied; give the
// client credentials", and TryAcquire and Acquire do not try again.
func TestClassCredentialsThatCannotBeFetchedNow(t *testing.T) {
	st, err := dynamolock.New(dynamodb.New(dynamodb.Options{
		Region: "eu-west-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ETIMEDOUT}
		}),
	}), table, nil)
	require.NoError(t, err)
	_, err = st.TryAcquire(t.Context(), request("x"))
	t.Log(err)
	require.ErrorIs(t, err, lease.ErrUnavailable)
}

// wrapped is a user's API in front of the SDK's: New takes any.
type wrapped struct{ *dynamodb.Client }

var errWrapped = errors.New("circuit breaker: deadline of 1s exceeded while waiting for the answer")

func (w wrapped) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if _, err := w.Client.UpdateItem(ctx, in, o...); err != nil {
		return nil, err
	}
	return nil, errWrapped // stored, but not answered
}

// An error of an unknown kind after a write is ErrMisconfigured, which says that the grant does not exist; it does, and nothing
// gives it back.
func TestClassUnknownErrorOfAWrite(t *testing.T) {
	s := newService(t)
	st, err := dynamolock.New(wrapped{s.sdk(nil)}, table, nil)
	require.NoError(t, err)
	_, err = st.TryAcquire(t.Context(), request("x"))
	info, inspectErr := s.host(t, nil).Inspect(t.Context(), "x")
	require.NoError(t, inspectErr)
	require.Equal(t, lease.Held, info.State)
	requireClass(t, err, lease.ErrInDoubt)
}

// Two front ends whose Dates differ by what is assumed (1 s), asked by turns: is a lease granted, kept for ten minutes, and with
// how many requests?
func TestTwoFrontEndsByTurns(t *testing.T) {
	for _, sec := range []int{2, 3, 4, 6, 30} {
		for _, ms := range []int{0, 250, 500, 990} {
			ttl, phase := time.Duration(sec)*time.Second, time.Duration(ms)*time.Millisecond
			t.Run(fmt.Sprint(ttl, "+", phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newService(t)
					time.Sleep(phase)
					var n atomic.Int64
					a, err := newStoreOn(s, func(next http.RoundTripper) http.RoundTripper {
						return roundTripper(func(r *http.Request) (*http.Response, error) {
							resp, err := next.RoundTrip(r)
							if err == nil && n.Add(1)%2 == 0 {
								resp.Header.Set("Date", time.Now().Add(time.Second).UTC().Format(http.TimeFormat))
							}
							return resp, err
						})
					})
					require.NoError(t, err)
					c, err := lease.New(a, &lease.Options{TTL: ttl, Observer: lease.ObserverFunc(func(lease.Event) {})})
					require.NoError(t, err)
					defer func() { _ = c.Close(t.Context()) }()
					for range 3 {
						l, err := c.TryAcquire(t.Context(), "x")
						require.NoError(t, err)
						before := n.Load()
						began := time.Now()
						select {
						case <-l.Done():
							t.Fatalf("lost after %v and %d requests: %v", time.Since(began), n.Load()-before, l.Err())
						case <-time.After(time.Minute):
						}
						t.Logf("%d requests in a minute", n.Load()-before)
						require.NoError(t, l.Release(t.Context()))
					}
				})
			})
		}
	}
}

// A bad name is ErrInvalid before any request (RaiseFloor checks it); Break sends it.
func TestBreakOfABadName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newService(t).host(t, nil)
		for _, name := range []string{"", "a\nb", string(make([]byte, 300))} {
			err := h.Break(t.Context(), name, 7, why)
			sent := h.sent.take()
			if sent != "" {
				t.Errorf("%.5q: sent %s, %v", name, sent, err)
				continue
			}
			requireClass(t, err, lease.ErrInvalid)
		}
	})
	require.True(t, true)
}
