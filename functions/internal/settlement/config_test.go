package settlement_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/functions/internal/environ"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/singleton"
)

func configure(env map[string]string) (settlement.Config, error) {
	r := environ.New(func(name string) string { return env[name] })
	return settlement.Configure(r), r.Err()
}

func TestConfigure(t *testing.T) {
	c, err := configure(nil)
	require.NoError(t, err)
	require.Equal(t, settlement.Config{Job: "settlement", Policy: singleton.AtLeastOnce, Fenced: true}, c)
	require.Equal(t, singleton.Options{Policy: singleton.AtLeastOnce}, c.Singleton())
	client, err := c.Client(memlease.New())
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, client.Options().TTL, "the lease package's default")

	c, err = configure(map[string]string{
		"LEASE_JOB": "other", "LEASE_TTL": "45s", "LEASE_POLICY": "at-most-once", "SETTLEMENT_PACE": "1s", "SETTLEMENT_FENCE": "off",
	})
	require.NoError(t, err)
	require.Equal(t, settlement.Config{Job: "other", TTL: 45 * time.Second, Policy: singleton.AtMostOnce, Pace: time.Second}, c)
	client, err = c.Client(memlease.New())
	require.NoError(t, err)
	require.Equal(t, 45*time.Second, client.Options().TTL)
}

func TestConfigureReportsAllFaultsAtOnce(t *testing.T) {
	bad := map[string]string{
		"LEASE_JOB": "a\nb", "LEASE_TTL": "soon", "LEASE_POLICY": "once", "SETTLEMENT_PACE": "-1s", "SETTLEMENT_FENCE": "maybe",
	}
	_, err := configure(bad)
	for name := range bad {
		require.ErrorContains(t, err, name)
	}
	c, err := configure(map[string]string{"LEASE_TTL": "2000h"})
	require.NoError(t, err, "only a store knows its longest")
	_, err = c.Client(memlease.New())
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "LEASE_TTL")
}

// The fence is there unless it was taken off on purpose.
func TestConfigureTakesTheFenceOff(t *testing.T) {
	for fence, refuses := range map[string]bool{"": true, "on": true, "off": false} {
		inBubble(t, func(t *testing.T, at time.Time) {
			c, err := configure(map[string]string{"SETTLEMENT_FENCE": fence})
			require.NoError(t, err)
			store := memlease.New()
			require.NoError(t, store.Guard().Put(t.Context(), settlement.Key("2026-03-01"), []byte("newer"), 100, "another"))
			s, err := c.Settlement(payments, store.Guard())
			require.NoError(t, err)
			o := open(t, store, payments, store.Guard(), 0)
			o.s = s
			_, _, err = o.settle(t, at)
			if refuses {
				require.ErrorIs(t, err, lease.ErrStale)
			} else {
				require.NoError(t, err)
			}
		})
	}
}
