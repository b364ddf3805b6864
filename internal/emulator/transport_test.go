package emulator_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

func TestTransportCarriesTheSDKInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
		createTables(t.Context(), t, c)
		time.Sleep(90*time.Second + 700*time.Millisecond)
		for _, table := range []string{locks, "missing"} {
			out, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String(table), Key: lock("x")})
			require.Equal(t, time.Now().UTC().Truncate(time.Second), date(t, out, err).UTC(), table)
		}
		wins := race(t.Context(), t, 100, func(ctx context.Context, _ int) error {
			_, err := c.UpdateItem(ctx, update("x", "SET version = :v", "attribute_not_exists(version)", item{":v": num("1")}))
			return err
		})
		require.EqualValues(t, 1, wins)
	})
}

func TestTransportShowsTheServicesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := func() time.Time { return time.Now().Add(time.Hour + 900*time.Millisecond) }
		c := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), ahead))
		out, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("missing"), Key: lock("x")})
		require.Equal(t, "ResourceNotFoundException", code(err))
		require.Equal(t, time.Now().Add(time.Hour).UTC(), date(t, out, err).UTC())
	})
}

// slow answers after a minute and counts what reached it and what it finished.
type slow struct{ reached, finished atomic.Int64 }

func (s *slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.reached.Add(1)
	time.Sleep(time.Minute)
	s.finished.Add(1)
	_, _ = io.Copy(w, r.Body)
}

func post(ctx context.Context, rt http.RoundTripper, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://service.invalid/path", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return string(answer), err
}

func TestTransportEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &slow{}
		rt := emulator.Transport(h, nil)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := post(ended, rt, "never sent")
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, h.reached.Load(), "a request whose context had ended reached the handler")

		bounded, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err = post(bounded, rt, "sent, not awaited")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.Zero(t, h.finished.Load())
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, h.finished.Load(), "the effect comes although nobody waits for it")

		answer, err := post(t.Context(), rt, "hello")
		require.NoError(t, err)
		require.Equal(t, "hello", answer)
	})
}

func TestTransportLetsTheHandlerCutTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		_, err := post(t.Context(), emulator.Transport(cut, nil), "hello")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}
