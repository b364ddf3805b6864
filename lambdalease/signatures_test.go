package lambdalease_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lambdalease"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// Any function that lambda.Start takes; what a skipped delivery answers is the zero value of its result.
func TestSignatures(t *testing.T) {
	type in struct{ Occurrence string }
	type out struct{ N int }
	handlers := map[string]struct {
		handler  any
		out, nul string
	}{
		"nothing":                 {func() {}, "null", "null"},
		"event":                   {func(in) {}, "null", "null"},
		"error":                   {func() error { return nil }, "null", "null"},
		"context":                 {func(context.Context) {}, "null", "null"},
		"context, error":          {func(context.Context) error { return nil }, "null", "null"},
		"event, error":            {func(in) error { return nil }, "null", "null"},
		"anything":                {func(any) error { return nil }, "null", "null"},
		"context, event":          {func(context.Context, *in) {}, "null", "null"},
		"result":                  {func() (out, error) { return out{1}, nil }, `{"N":1}`, `{"N":0}`},
		"event, result":           {func(i in) (string, error) { return i.Occurrence[:4], nil }, `"2026"`, `""`},
		"context, result":         {func(context.Context) (*out, error) { return &out{1}, nil }, `{"N":1}`, `null`},
		"context, event, result":  {func(context.Context, in) ([]int, error) { return []int{1}, nil }, `[1]`, `null`},
		"map":                     {func() (map[string]int, error) { return nil, nil }, `null`, `null`},
		"reader":                  {func() (io.Reader, error) { return strings.NewReader("raw"), nil }, `raw`, `null`},
		"result that has no JSON": {func() (chan int, error) { return nil, errors.New("x") }, ``, `null`},
		"lambda.Handler":          {echo{}, `{"n":1}`, `null`},
		"lambda.NewHandler":       {lambda.NewHandler(func() (int, error) { return 1, nil }), `1`, `null`},
	}
	for name, c := range handlers {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *cloud) {
				h := w.function(t, c.handler, nil)
				event := `{"Occurrence":"2026-03-02T06:00:00Z","occurrence":"2026-03-02T06:00:00Z"}`
				got, err := invoke(t, h, time.Minute, event)
				if c.out == "" {
					require.Error(t, err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.out, got)
				got, err = invoke(t, h, time.Minute, event)
				require.NoError(t, err)
				require.Equal(t, c.nul, got)
			})
		})
	}
}

type echo struct{}

func (echo) Invoke(context.Context, []byte) ([]byte, error) { return []byte(`{"n":1}`), nil }

// TestNamespace: what CloudWatch takes as a name is taken, and nothing else.
func TestNamespace(t *testing.T) {
	client := newCloud().client(t, 6*time.Second, nil)
	for name, good := range map[string]bool{
		"a": true, "AZaz09._/#: -": true, "/aws-like": true, strings.Repeat("n", 255): true, "two words ": true,
		strings.Repeat("n", 256): false, " ": false, " a": false, "a\n": false, "a\nb": false, "a@b": false, "a[b": false, "a`b": false,
		"a{b": false, "a;b": false, "\u00e9t\u00e9": false, "a\xff": false,
	} {
		_, err := lambdalease.New(client, job, settle, &lambdalease.Options{Namespace: name})
		if good {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, "namespace", name)
		}
	}
}

func TestBadArguments(t *testing.T) {
	client := newCloud().client(t, 6*time.Second, nil)
	for name, handler := range map[string]any{
		"nil":               nil,
		"nil function":      (func())(nil),
		"no function":       42,
		"three arguments":   func(context.Context, int, int) {},
		"no context first":  func(int, int) {},
		"another interface": func(io.Reader) {},
		"variadic":          func(...int) {},
		"no error":          func() int { return 0 },
		"error first":       func() (error, int) { return nil, 0 },
		"three results":     func() (int, int, error) { return 0, 0, nil },
	} {
		_, err := lambdalease.New(client, job, handler, nil)
		require.ErrorIs(t, err, lease.ErrInvalid, name)
		_, err = lambdalease.Wrap(client, job, handler).Invoke(t.Context(), []byte(rule))
		require.ErrorIs(t, err, lease.ErrInvalid, name)
	}
	_, err := lambdalease.New(nil, "", 42, &lambdalease.Options{
		Reserve: time.Millisecond, Namespace: "a\nb", Singleton: singleton.Options{Policy: "sometimes"},
	})
	for _, part := range []string{"client is nil", "handler", "reserve", "namespace"} {
		require.ErrorContains(t, err, part, "all faults at once")
	}
	_, err = lambdalease.New(client, job, settle, &lambdalease.Options{Singleton: singleton.Options{Policy: "sometimes"}})
	require.ErrorContains(t, err, "sometimes")
}
