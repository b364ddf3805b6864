package main

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/functions/internal/functiontest"
	"github.com/cloudlease/cloudlease/functions/internal/start"
	"github.com/cloudlease/cloudlease/internal/consulfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/internal/template"
	"github.com/cloudlease/cloudlease/lease"
)

const function = "ConsulFunction"

func deployed(t *testing.T) *template.Stack {
	t.Helper()
	return functiontest.Deployed(t, template.Variants["consul"])
}

func TestTemplate(t *testing.T) {
	functiontest.Template(t, deployed(t), function, functiontest.Variables{
		Left: []string{"SETTLEMENT_PACE", "SETTLEMENT_FENCE", "CONSUL_HTTP_SSL", "CONSUL_HTTP_SSL_VERIFY"},
	}, func(getenv func(string) string) error {
		_, err := newHandler(getenv)
		return err
	})
	c, err := configure(functiontest.Environment(deployed(t).Environment(function)).With(nil))
	require.NoError(t, err)
	require.Equal(t, "{{resolve:secretsmanager:cloudlease/consul}}", c.consul.Token, "what CloudFormation puts the secret in place of")
}

// TestDeployment: a run that is well matches the filter of no alarm; what is deployed wrong, or cannot be reached, fails the
// invocation with its class in the log, counts in the metrics, and leaves nothing behind.
func TestDeployment(t *testing.T) {
	without := func(prefix string) map[string]consulfake.Policy {
		p := consulfake.Policy{Keys: map[string]string{}, Sessions: policy.Sessions}
		for key, right := range policy.Keys {
			if key != prefix {
				p.Keys[key] = right
			}
		}
		return map[string]consulfake.Policy{secret: p}
	}
	misconfigured := map[string]int{"Failures": 1, "Misconfigured": 1}
	for name, f := range map[string]struct {
		policies map[string]consulfake.Policy
		wire     http.RoundTripper
		class    error
		want     map[string]int
	}{
		"well":                         {want: map[string]int{"Runs": 1}},
		"taking the lock is denied":    {policies: without("cloudlease/"), class: lease.ErrDenied, want: misconfigured},
		"reading payments is denied":   {policies: without("payments/"), class: lease.ErrDenied, want: misconfigured},
		"writing the result is denied": {policies: without("results/"), class: lease.ErrDenied, want: misconfigured},
		"sessions are denied": {
			policies: map[string]consulfake.Policy{secret: {Keys: policy.Keys}}, class: lease.ErrDenied, want: misconfigured,
		},
		"the token is unknown":     {policies: map[string]consulfake.Policy{"another": policy}, class: lease.ErrDenied, want: misconfigured},
		"nobody listens":           {wire: functiontest.Refused{}, class: lease.ErrUnavailable, want: map[string]int{"Failures": 1}},
		"something else is behind": {wire: emulator.Transport(http.NotFoundHandler(), nil), class: lease.ErrMisconfigured, want: misconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			stack, log := deployed(t), functiontest.NewLog(t)
			synctest.Test(t, func(t *testing.T) {
				until(t, "2026-03-02T00:05:00Z")
				policies := f.policies
				if policies == nil {
					policies = map[string]consulfake.Policy{secret: policy}
				}
				s := consulfake.New(&consulfake.Options{Node: node, Policies: policies})
				defer s.Close()
				s.Put("payments/2026-03-01", day())
				wire := f.wire
				if wire == nil {
					wire = emulator.Transport(s, nil)
				}
				h, _ := environmentOn(t, wire)
				_, err := invoke(t, h)
				if f.class == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, f.class)
					require.Empty(t, s.Keys("results/"))
					requireFree(t, s)
				}
				functiontest.RequireMetrics(t, stack, function, log.Lines(t), f.want)
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestWrongSetting(t *testing.T) {
	log := functiontest.NewLog(t)
	_, err := start.Open(newHandler, complete.With(map[string]string{"CONSUL_HTTP_ADDR": ""}))
	require.ErrorContains(t, err, "CONSUL_HTTP_ADDR")
	functiontest.RequireMetrics(t, deployed(t), function, log.Lines(t), map[string]int{"Failures": 1, "Misconfigured": 1})
}
