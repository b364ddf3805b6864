//go:build unix

package service_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
	"github.com/cloudlease/cloudlease/e2e/torture/secret"
	"github.com/cloudlease/cloudlease/e2e/torture/service"
)

const (
	anID   = "2a9c0a5e-13fd-4c7b-9a54-0d7f2c4d3e11"
	aText  = "k3v9zq7n1m5x8c2b4l6j0h"
	aProof = "sUmOfAll/and+more0000000000000000000000000000000="
)

// Everything that is secret is told, by what it is, and nothing else.
func TestSecrets(t *testing.T) {
	for name, c := range map[string]struct {
		service      string
		path, body   string
		headers      http.Header
		kind, secret string
	}{
		"azure, a lease":          {service: "azblob", headers: http.Header{"X-Ms-Lease-Id": {anID}}, kind: "lease id", secret: anID},
		"azure, a lease asked":    {service: "azblob", headers: http.Header{"X-Ms-Proposed-Lease-Id": {anID}}, kind: "lease id", secret: anID},
		"azure, a signed request": {service: "azblob", headers: http.Header{"Authorization": {"SharedKey account:" + aProof}}, kind: "signature", secret: aProof},
		"azure, a signed query":   {service: "azblob", path: "/locks?sig=sUmOfAll%2Fand%2Bmore0000000000000000000000000000000%3D", kind: "signature", secret: aProof},
		"azure, nothing":          {service: "azblob", headers: http.Header{"X-Ms-Request-Id": {anID}, "Etag": {aProof}}},
		"dynamodb, a signed request": {
			service: "dynamodb", headers: http.Header{"Authorization": {"AWS4-HMAC-SHA256 Credential=AKIA/day, SignedHeaders=host, Signature=" + aText}},
			kind: "signature", secret: aText,
		},
		"dynamodb, a session": {service: "dynamodb", headers: http.Header{"X-Amz-Security-Token": {aText}}, kind: "session token", secret: aText},
		"dynamodb, a holder": {
			service: "dynamodb", body: `{"ExpressionAttributeValues":{":h":{"S":"w1#` + aText + `"},":v":{"N":"1"}}}`, kind: "attempt", secret: aText,
		},
		"dynamodb, a write": {service: "dynamodb", body: `{"ExpressionAttributeValues":{":n":{"S":"` + aText + `"}}}`, kind: "nonce", secret: aText},
		"dynamodb, a look":  {service: "dynamodb", body: `{"Item":{"nonce":{"S":"` + aText + `"},"holder":{"S":""}}}`, kind: "nonce", secret: aText},
		"dynamodb, nothing": {service: "dynamodb", body: `{"Item":{"key":{"S":"` + aText + `"},"holder":{"S":"` + aText + `"}},"ends`},
		"consul, a token":   {service: "consul", headers: http.Header{"X-Consul-Token": {anID}}, kind: "ACL token", secret: anID},
		"consul, a renewal": {service: "consul", path: "/v1/session/renew/" + anID, kind: "session", secret: anID},
		"consul, a new one": {service: "consul", path: "/v1/session/create", body: `{"ID":"` + anID + `"}`, kind: "session", secret: anID},
		"consul, a lock":    {service: "consul", path: "/v1/txn", body: `[{"KV":{"Verb":"lock","Session":"` + anID + `"}}]`, kind: "session", secret: anID},
		"consul, a grant": {
			service: "consul", path: "/v1/txn", body: `{"Results":[{"KV":{"Value":"eyJhdHRlbXB0IjoiazN2OXpxN24xbTV4OGMyYjRsNmowaCJ9"}}]}`,
			kind: "attempt", secret: aText,
		},
		"consul, nothing": {service: "consul", path: "/v1/kv/" + anID, body: `[{"Key":"` + anID + `","Value":"` + aText + `"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://127.0.0.1"+c.path, http.NoBody)
			told := map[string]string{}
			find(t, c.service).Secrets(proxy.Message{URL: r.URL, Header: c.headers, Body: []byte(c.body)}, func(kind, secret string) {
				if secret != "" {
					told[secret] = kind
				}
			})
			if c.secret == "" {
				require.Empty(t, told)
				return
			}
			require.Equal(t, c.kind, told[c.secret])
			require.Contains(t, find(t, c.service).SecretKinds(), c.kind)
		})
	}
}

// A credential that is not looked for as it is shown is looked for as it is configured.
func TestCredentials(t *testing.T) {
	for _, name := range names {
		var b secret.Book
		service.TellCredentials(find(t, name), b.Add)
		if name == "consul" {
			require.Empty(t, b.Counts())
		} else {
			require.Equal(t, map[string]int{"credential": 1}, b.Counts(), name)
		}
	}
}

// What the proxy logs of a request to Consul has neither the session nor what is written, whether or not the answer is compressed.
func TestProxysLogOfConsul(t *testing.T) {
	var answer bytes.Buffer
	z := gzip.NewWriter(&answer)
	_, err := io.WriteString(z, `{"Results":[{"KV":{"Session":"`+anID+`"}}]}`)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(answer.Bytes())
	}))
	defer back.Close()
	var (
		b   secret.Book
		mu  sync.Mutex
		log []proxy.Entry
	)
	p, err := proxy.New(t.Context(), proxy.Options{
		Target: strings.TrimPrefix(back.URL, "http://"), Service: find(t, "consul"), Secret: b.Add, Log: func(e proxy.Entry) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, e)
		},
	})
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, body := range map[string]string{
		"/v1/session/renew/" + anID: "",
		"/v1/txn":                   `[{"KV":{"Verb":"lock","Key":"a/lock","Session":"` + anID + `","Value":"` + aText + `"}}]`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.URL()+path, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.NoError(t, p.Close())
	require.Equal(t, map[string]int{"session": 1}, b.Counts())
	var keys []string
	for _, e := range log {
		keys = append(keys, e.Key)
	}
	require.ElementsMatch(t, []string{"/v1/session/renew/", "/v1/txn lock a/lock"}, keys)
}
