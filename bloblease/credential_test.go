package bloblease_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// identity is a credential as azidentity's are.
type identity func(context.Context) (azcore.AccessToken, error)

func (i identity) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return i(ctx)
}

// tokenClient is a client of s with an identity, over what passes for HTTPS.
func tokenClient(t *testing.T, s *service, i identity) *container.Client {
	t.Helper()
	return tokenClientOn(t, "https://blob.invalid/account/locks", i, emulator.Transport(s.Service, s.now))
}

func tokenClientOn(t *testing.T, url string, i identity, wire http.RoundTripper) *container.Client {
	t.Helper()
	c, err := container.NewClient(url, i, &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: wire}, Retry: policy.RetryOptions{MaxRetries: -1},
	}})
	require.NoError(t, err)
	return c
}

// guarded refuses tokens that are over, as the service does.
func guarded(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		until, _ := time.Parse(time.RFC3339Nano, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) // zero is over
		if !time.Now().Before(until) {
			return answer(r, http.StatusUnauthorized, "InvalidAuthenticationInfo"), nil
		}
		return next.RoundTrip(r)
	})
}

func tokenFor(d time.Duration) azcore.AccessToken {
	until := time.Now().Add(d)
	return azcore.AccessToken{Token: until.Format(time.RFC3339Nano), ExpiresOn: until}
}

// TestAZ07_TokenRunsOut: a hold that is longer than the access token's life goes on, and its release works.
func TestAZ07_TokenRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var asked atomic.Int32
		wire := guarded(emulator.Transport(s.Service, s.now))
		st, err := bloblease.New(tokenClientOn(t, "https://blob.invalid/account/locks", func(context.Context) (azcore.AccessToken, error) {
			asked.Add(1)
			return tokenFor(20 * time.Second), nil
		}, wire), nil)
		require.NoError(t, err)
		c := host{st, nil}.client(t, &lease.Options{TTL: bloblease.MinTTL})
		l, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(90 * time.Second)
		require.NoError(t, l.Err())
		require.GreaterOrEqual(t, asked.Load(), int32(4))
		time.Sleep(21 * time.Second)
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestAZ07_SlowIdentity: a refresh that hangs does not use the lease up unnoticed, and a later one that works saves it.
func TestAZ07_SlowIdentity(t *testing.T) {
	for _, mended := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			slow := time.Now().Add(5 * time.Second)
			wire := guarded(emulator.Transport(s.Service, s.now))
			st, err := bloblease.New(tokenClientOn(t, "https://blob.invalid/account/locks", func(ctx context.Context) (azcore.AccessToken, error) {
				if now := time.Now(); now.After(slow) && (!mended || now.Before(slow.Add(8*time.Second))) {
					<-ctx.Done()
					return azcore.AccessToken{}, ctx.Err()
				}
				return tokenFor(8 * time.Second), nil
			}, wire), nil)
			require.NoError(t, err)
			c := host{st, nil}.client(t, &lease.Options{TTL: bloblease.MinTTL})
			began := time.Now()
			l, err := c.TryAcquire(t.Context(), "x")
			require.NoError(t, err)
			if mended {
				time.Sleep(time.Minute)
				require.NoError(t, l.Err())
				require.NoError(t, l.Release(t.Context()))
			} else {
				<-l.Done()
				require.LessOrEqual(t, time.Since(began), 5*time.Second+bloblease.MinTTL, "the bound holds while the refresh hangs")
				require.ErrorIs(t, l.Err(), lease.ErrLost)
			}
			_ = c.Close(t.Context()) // a lost lease cannot be given back without an identity
		})
	}
}

// TestAZ07_Firewall: one refusal does not end a lease; lasting ones do, at its bound; an acquire is refused at once.
func TestAZ07_Firewall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var closed atomic.Bool
		var once atomic.Int32
		st, err := bloblease.New(s.sdk(t, func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if closed.Load() || word(r) == "renew" && once.Add(1) == 1 {
					return answer(r, http.StatusForbidden, "AuthorizationFailure"), nil
				}
				return next.RoundTrip(r)
			})
		}), nil)
		require.NoError(t, err)
		c := host{st, nil}.client(t, &lease.Options{TTL: bloblease.MinTTL})
		l, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, l.Err(), "one 403")
		closed.Store(true)
		began := time.Now()
		<-l.Done()
		require.LessOrEqual(t, time.Since(began), bloblease.MinTTL)
		require.ErrorIs(t, l.Err(), lease.ErrLost)
		require.ErrorContains(t, l.Err(), "access denied")
		require.ErrorContains(t, l.Err(), "AuthorizationFailure")

		began = time.Now()
		_, err = c.Acquire(t.Context(), "y")
		requireClass(t, err, lease.ErrDenied)
		require.ErrorContains(t, err, "network rules")
		require.Less(t, time.Since(began), 3*time.Second)
		_ = c.Close(t.Context())
	})
}

// TestCredentials takes a lock with every credential that users have: a connection string, a key, a signature, and a bearer
// token over HTTPS.
func TestCredentials(t *testing.T) {
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return
	}
	t.Parallel()
	dir := t.TempDir()
	cert, key := selfSigned(t, dir)
	e, err := emulator.StartAzurite(t.Context(), emulator.AzuriteOptions{Certificate: cert, Key: key})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	wire := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(t, cert), MinVersion: tls.VersionTLS12}}
	t.Cleanup(wire.CloseIdleConnections)
	opt := &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: wire}}}

	url := e.URL + "/locks"
	shared, err := container.NewSharedKeyCredential(emulator.AzuriteAccount, emulator.AzuriteKey)
	require.NoError(t, err)
	byKey, err := container.NewClientWithSharedKeyCredential(url, shared, opt)
	require.NoError(t, err)
	_, err = byKey.Create(t.Context(), nil)
	require.NoError(t, err)
	byString, err := container.NewClientFromConnectionString(emulator.AzuriteConnection(e.URL), "locks", opt)
	require.NoError(t, err)
	signed, err := byKey.GetSASURL(sas.ContainerPermissions{Read: true, Write: true, Add: true, Create: true, List: true}, time.Now().Add(time.Hour), nil)
	require.NoError(t, err)
	bySignature, err := container.NewClientWithNoCredential(signed, opt)
	require.NoError(t, err)
	byIdentity, err := container.NewClient(url, identity(func(context.Context) (azcore.AccessToken, error) {
		return unsignedToken(t, time.Hour), nil
	}), opt)
	require.NoError(t, err)

	for name, c := range map[string]*container.Client{
		"connection string": byString, "key": byKey, "signature": bySignature, "identity": byIdentity,
	} {
		st, err := bloblease.New(c, nil)
		require.NoError(t, err)
		client := host{st, nil}.client(t, nil)
		l, err := client.TryAcquire(t.Context(), "x")
		require.NoError(t, err, name)
		require.NoError(t, l.Save(t.Context(), []byte(name)))
		require.NoError(t, l.Release(t.Context()), name)
		require.NoError(t, client.Close(t.Context()))
	}

	expired, err := container.NewClient(url, identity(func(context.Context) (azcore.AccessToken, error) {
		token := unsignedToken(t, -time.Hour)
		token.ExpiresOn = time.Now().Add(time.Hour) // this host's clock is wrong
		return token, nil
	}), opt)
	require.NoError(t, err)
	st, err := bloblease.New(expired, nil)
	require.NoError(t, err)
	_, err = st.TryAcquire(t.Context(), request("x"))
	requireClass(t, err, lease.ErrDenied)
}

// unsignedToken is what Azurite accepts: it looks at the claims, and not at who signed them.
func unsignedToken(t *testing.T, d time.Duration) azcore.AccessToken {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	now := time.Now()
	claims := map[string]any{
		"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/",
		"nbf": now.Add(-2 * time.Hour).Unix(), "iat": now.Add(-2 * time.Hour).Unix(), "exp": now.Add(d).Unix(),
	}
	token := part(map[string]string{"alg": "none", "typ": "JWT"}) + "." + part(claims) + ".unsigned"
	return azcore.AccessToken{Token: token, ExpiresOn: now.Add(d)}
}

// selfSigned makes a certificate for the loopback address.
func selfSigned(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "azurite"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "azurite"}}, &private.PublicKey, private)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	write := func(name, kind string, b []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return file
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", encoded)
}

func pool(t *testing.T, cert string) *x509.CertPool {
	t.Helper()
	b, err := os.ReadFile(cert)
	require.NoError(t, err)
	p := x509.NewCertPool()
	require.True(t, p.AppendCertsFromPEM(b))
	return p
}
