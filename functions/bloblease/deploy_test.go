package main

import (
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/functions/internal/functiontest"
	"github.com/cloudlease/cloudlease/functions/internal/start"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/internal/template"
	"github.com/cloudlease/cloudlease/lease"
)

const function = "AzureFunction"

// TestTemplate: with an identity. What the template sets for azidentity is what its workload identity needs.
func TestTemplate(t *testing.T) {
	s := functiontest.Deployed(t, template.Variants["azblob, identity"])
	identity := []string{"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"}
	functiontest.Template(t, s, function, functiontest.Variables{
		Left: []string{"SETTLEMENT_PACE", "SETTLEMENT_FENCE", "LEASE_TOKENS", "AZURE_STORAGE_CONNECTION_STRING"},
		SDK:  append([]string{"AZURE_TOKEN_CREDENTIALS"}, identity...),
	}, func(getenv func(string) string) error {
		_, err := newHandler(getenv)
		return err
	})
	for _, name := range identity {
		t.Setenv(name, s.Environment(function)[name])
	}
	const chain = "AZURE_TOKEN_CREDENTIALS" // confines the identity to this one
	t.Setenv(chain, "AnotherCredential")
	_, err := azidentity.NewDefaultAzureCredential(nil)
	require.ErrorContains(t, err, chain)
	t.Setenv(chain, s.Environment(function)[chain])
	_, err = azidentity.NewDefaultAzureCredential(nil)
	require.NoError(t, err)
	_, err = azidentity.NewWorkloadIdentityCredential(nil)
	require.NoError(t, err)
	for _, name := range identity {
		require.NoError(t, os.Unsetenv(name))
		_, err := azidentity.NewWorkloadIdentityCredential(nil)
		require.Error(t, err, "without %s", name)
		t.Setenv(name, s.Environment(function)[name])
	}
}

// TestTemplateWithASecret: with a connection string, of which the template has the name only.
func TestTemplateWithASecret(t *testing.T) {
	s := functiontest.Deployed(t, template.Variants["azblob, connection string"])
	require.Equal(t, "{{resolve:secretsmanager:cloudlease/azure}}", s.Environment(function)["AZURE_STORAGE_CONNECTION_STRING"])
	functiontest.Template(t, s, function, functiontest.Variables{
		Left: []string{"SETTLEMENT_PACE", "SETTLEMENT_FENCE", "LEASE_TOKENS", "AZURE_STORAGE_SERVICE_URL"},
	}, func(getenv func(string) string) error {
		_, err := newHandler(func(name string) string {
			if name == "AZURE_STORAGE_CONNECTION_STRING" && getenv(name) != "" {
				return complete[name] // what CloudFormation puts in its place
			}
			return getenv(name)
		})
		return err
	})
}

// denying answers requests below a path as the service does to an identity that has no role there.
func denying(next http.Handler, container string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if container != "" && strings.HasPrefix(r.URL.Path, "/"+emulator.AzuriteAccount+"/"+container+"/") {
			blobfake.WriteError(w, r, &blobfake.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TestDeployment: a run that is well matches the filter of no alarm; what is deployed wrong, or cannot be reached, fails the
// invocation with its class in the log, counts in the metrics, and leaves nothing behind: with the fault mended the same
// occurrence runs.
func TestDeployment(t *testing.T) {
	misconfigured := map[string]int{"Failures": 1, "Misconfigured": 1}
	for name, f := range map[string]struct {
		denied  string
		changes map[string]string
		class   error
		want    map[string]int
	}{
		"well":                            {want: map[string]int{"Runs": 1}},
		"taking the lock is denied":       {denied: "locks", class: lease.ErrDenied, want: misconfigured},
		"reading payments is denied":      {denied: "payments", class: lease.ErrDenied, want: misconfigured},
		"writing the result is denied":    {denied: "results", class: lease.ErrDenied, want: misconfigured},
		"there is no lock container":      {changes: map[string]string{"LEASE_CONTAINER": "lokcs"}, class: lease.ErrMisconfigured, want: misconfigured},
		"there is no container of days":   {changes: map[string]string{"PAYMENTS_CONTAINER": "paymnets"}, class: lease.ErrMisconfigured, want: misconfigured},
		"there is no container of result": {changes: map[string]string{"RESULTS_CONTAINER": "resluts"}, class: lease.ErrMisconfigured, want: misconfigured},
		"nobody listens": {
			changes: map[string]string{"AZURE_STORAGE_CONNECTION_STRING": complete["AZURE_STORAGE_CONNECTION_STRING"]},
			class:   lease.ErrUnavailable, want: map[string]int{"Failures": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			service := blobfake.New()
			own, err := emulator.Serve(service)
			require.NoError(t, err)
			defer func() { require.NoError(t, own.Close()) }()
			e, err := emulator.Serve(denying(service, f.denied))
			require.NoError(t, err)
			defer func() { require.NoError(t, e.Close()) }()
			connection := emulator.AzuriteConnection(own.URL + "/" + emulator.AzuriteAccount)
			seed(t, connection)
			s, log := functiontest.Deployed(t, template.Variants["azblob, identity"]), functiontest.NewLog(t)
			changes := map[string]string{"AZURE_STORAGE_CONNECTION_STRING": emulator.AzuriteConnection(e.URL + "/" + emulator.AzuriteAccount)}
			maps.Copy(changes, f.changes)
			h, err := newHandler(complete.With(changes))
			require.NoError(t, err)
			_, err = h.Invoke(t.Context(), []byte(functiontest.Event))
			functiontest.RequireMetrics(t, s, function, log.Lines(t), f.want)
			if f.class == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, f.class)
			mended, err := newHandler(complete.With(map[string]string{"AZURE_STORAGE_CONNECTION_STRING": connection}))
			require.NoError(t, err)
			out, err := mended.Invoke(t.Context(), []byte(functiontest.Event))
			require.NoError(t, err)
			require.Contains(t, string(out), `"count":30`)
			functiontest.RequireMetrics(t, s, function, log.Lines(t), map[string]int{"Runs": 1})
		})
	}
}

func TestWrongSetting(t *testing.T) {
	log := functiontest.NewLog(t)
	_, err := start.Open(newHandler, complete.With(map[string]string{"LEASE_TOKENS": "some"}))
	require.ErrorContains(t, err, "LEASE_TOKENS")
	s := functiontest.Deployed(t, template.Variants["azblob, identity"])
	functiontest.RequireMetrics(t, s, function, log.Lines(t), map[string]int{"Failures": 1, "Misconfigured": 1})
}
