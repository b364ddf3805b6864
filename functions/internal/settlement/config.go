package settlement

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/functions/internal/environ"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// Config is what a function's environment says of the job, whatever its store is.
type Config struct {
	Job    string           // LEASE_JOB, "settlement" unless told otherwise
	TTL    time.Duration    // LEASE_TTL, the lease package's default unless told otherwise
	Policy singleton.Policy // LEASE_POLICY, "at-least-once" unless told otherwise
	Pace   time.Duration    // SETTLEMENT_PACE, for demonstrations
	Fenced bool             // SETTLEMENT_FENCE, "on" unless told "off", which shows what happens then
}

// Configure reads the job's settings. What is wrong with them is a fault of r.
func Configure(r *environ.Reader) Config {
	c := Config{
		Job: r.Or("LEASE_JOB", "settlement"), TTL: r.Duration("LEASE_TTL"), Pace: r.Duration("SETTLEMENT_PACE"),
		Policy: singleton.Policy(r.OneOf("LEASE_POLICY", string(singleton.AtLeastOnce), string(singleton.AtMostOnce))),
		Fenced: r.OneOf("SETTLEMENT_FENCE", "on", "off") == "on",
	}
	if err := lease.CheckName(c.Job); err != nil {
		r.Wrong("LEASE_JOB", "the name of a lock")
	}
	return c
}

// Client makes the client of the job's lock. It makes no request.
func (c Config) Client(store lease.Store) (*lease.Client, error) {
	client, err := lease.New(store, &lease.Options{TTL: c.TTL})
	if err != nil {
		return nil, fmt.Errorf("the environment variable LEASE_TTL: %w", err)
	}
	return client, nil
}

// Settlement makes the job. It makes no request.
func (c Config) Settlement(payments Payments, results fence.Guard) (*Settlement, error) {
	if !c.Fenced {
		results = Unfenced(results)
	}
	return New(payments, results, &Options{Pace: c.Pace, Logger: slog.Default()})
}

// Singleton are the job's options.
func (c Config) Singleton() singleton.Options { return singleton.Options{Policy: c.Policy} }
