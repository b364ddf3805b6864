package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/functions/internal/functiontest"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

var complete = functiontest.Environment{
	"LEASE_TABLE": "locks", "PAYMENTS_TABLE": "payments", "RESULTS_TABLE": "results", "AWS_REGION": "eu-west-1",
	"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
}

func TestEnvironment(t *testing.T) {
	c, err := configure(complete.With(map[string]string{
		"AWS_ENDPOINT_URL": "http://127.0.0.1:4566", "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000", "LEASE_JOB": "other",
	}))
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:8000", c.Endpoint, "the more specific one")
	require.Equal(t, "other", c.Job)
}

func TestBadEnvironment(t *testing.T) {
	functiontest.BadEnvironment(t, complete, newHandler, map[string]string{
		"LEASE_TABLE": "", "PAYMENTS_TABLE": "", "RESULTS_TABLE": "", "AWS_REGION": "", "AWS_ENDPOINT_URL": "localhost",
	})
}

func TestCredentials(t *testing.T) {
	c, err := configure(complete.With(map[string]string{"AWS_SESSION_TOKEN": "session"}))
	require.NoError(t, err)
	creds, err := c.Credentials(t.Context())
	require.NoError(t, err)
	require.Equal(t, "session", creds.SessionToken)
	c, err = configure(complete.With(map[string]string{"AWS_SECRET_ACCESS_KEY": ""}))
	require.NoError(t, err)
	_, err = c.Credentials(t.Context())
	require.ErrorContains(t, err, "AWS_SECRET_ACCESS_KEY")
}

// TestSettles runs the whole function on an engine: once per occurrence, payments read page by page, the result fenced.
func TestSettles(t *testing.T) {
	for _, engine := range emulator.Engines() {
		t.Run(engine.Name, func(t *testing.T) {
			e := engine.For(t)
			api := emulator.Client(e.URL, nil)
			seed(t, api)
			h, err := newHandler(complete.With(map[string]string{"AWS_ENDPOINT_URL": e.URL}))
			require.NoError(t, err)
			results, err := dynamolock.NewGuard(api, "results", nil)
			require.NoError(t, err)
			functiontest.Settles(t, h, results)
		})
	}
}

// A payment that is not what the table should hold fails the run, and says which one it is.
func TestForeignPayments(t *testing.T) {
	for name, c := range map[string]struct {
		item map[string]types.AttributeValue
		says string
	}{
		"no cents":       {map[string]types.AttributeValue{"id": str("p1"), "currency": str("EUR")}, `"p1"`},
		"cents are text": {map[string]types.AttributeValue{"id": str("p1"), "currency": str("EUR"), "cents": str("100")}, `"cents"`},
		"broken cents":   {map[string]types.AttributeValue{"id": str("p1"), "currency": str("EUR"), "cents": number("1.5")}, "whole number"},
	} {
		t.Run(name, func(t *testing.T) {
			api := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
			seed(t, api)
			c.item["day"] = str("2026-04-01")
			_, err := api.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("payments"), Item: c.item})
			require.NoError(t, err)
			n := 0
			for _, got := range (&payments{api, "payments"}).Day(t.Context(), "2026-04-01") {
				n++
				err = got
			}
			require.Equal(t, 1, n)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "payments")
		})
	}
}

// small makes the service answer queries in pages of seven items.
type small struct{ http.RoundTripper }

func (s small) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".Query") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = append([]byte(`{"Limit":7,`), bytes.TrimPrefix(body, []byte("{"))...)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return s.RoundTripper.RoundTrip(r)
}

func TestPaymentsInPages(t *testing.T) {
	api := emulator.Client("", small{emulator.Transport(emulator.NewEmbedded(), nil)})
	seed(t, api)
	var ids []string
	for p, err := range (&payments{api, "payments"}).Day(t.Context(), "2026-03-01") {
		require.NoError(t, err)
		ids = append(ids, p.ID)
	}
	require.Len(t, ids, 30)
	require.IsIncreasing(t, ids)
	n := 0
	for _, err := range (&payments{api, "payments"}).Day(t.Context(), "2026-03-01") {
		require.NoError(t, err)
		if n++; n == 10 {
			break
		}
	}
	require.Equal(t, 10, n)
}

func TestMissingPaymentsTable(t *testing.T) {
	api := emulator.Client("", emulator.Transport(emulator.NewEmbedded(), nil))
	for _, err := range (&payments{api, "nowhere"}).Day(t.Context(), "2026-03-01") {
		require.ErrorContains(t, err, "nowhere")
	}
}

// seed makes the tables and thirty payments of 1 to 30 EUR on one day, and one on each day beside it.
func seed(t *testing.T, api *dynamodb.Client) {
	t.Helper()
	require.NoError(t, emulator.CreateTables(t.Context(), api,
		dynamolock.CreateTableInput("locks"), tableOf("results", "key"), tableOf("payments", "day", "id")))
	put := func(day string, n int) {
		_, err := api.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("payments"), Item: map[string]types.AttributeValue{
			"day": str(day), "id": str(fmt.Sprintf("p%03d", n)), "cents": number(fmt.Sprint(n * 100)), "currency": str("EUR"),
		}})
		require.NoError(t, err)
	}
	for n := range 30 {
		put("2026-03-01", n+1)
	}
	put("2026-02-28", 1000)
	put("2026-03-02", 1000)
}

func tableOf(name string, keys ...string) *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest}
	for i, key := range keys {
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{
			AttributeName: &key, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i],
		})
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{
			AttributeName: &key, AttributeType: types.ScalarAttributeTypeS,
		})
	}
	return in
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
