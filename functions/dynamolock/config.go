package main

import (
	"github.com/cloudlease/cloudlease/functions/dynamolock/dynamoenv"
	"github.com/cloudlease/cloudlease/functions/internal/environ"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
)

// config is what the function's environment says.
type config struct {
	dynamoenv.Settings
	settlement.Config
	leaseTable    string // LEASE_TABLE
	paymentsTable string // PAYMENTS_TABLE
	resultsTable  string // RESULTS_TABLE
}

// configure reads the environment and reports all that is wrong with it at once, by name.
func configure(getenv func(string) string) (config, error) {
	r := environ.New(getenv)
	c := config{
		Config:     settlement.Configure(r),
		leaseTable: r.Need("LEASE_TABLE"), paymentsTable: r.Need("PAYMENTS_TABLE"), resultsTable: r.Need("RESULTS_TABLE"),
		Settings: dynamoenv.Configure(r, getenv),
	}
	return c, r.Err()
}
