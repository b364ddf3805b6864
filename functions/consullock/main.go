// Command consullock is an AWS Lambda function that settles the payments of a day once per occurrence of its schedule, with its
// lock, its payments and its results in Consul's key-value store. A result is a transaction that is fenced by the lock's token.
package main

import (
	"fmt"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/consullock"
	"github.com/cloudlease/cloudlease/functions/internal/start"
	"github.com/cloudlease/cloudlease/lambdalease"
)

func main() { start.Lambda(newHandler) }

// newHandler puts the function together from its environment. It makes no request.
func newHandler(getenv func(string) string) (*lambdalease.Handler, error) {
	cfg, err := configure(getenv)
	if err != nil {
		return nil, err
	}
	return open(cfg)
}

func open(cfg config) (*lambdalease.Handler, error) {
	store, err := consullock.New(cfg.consul, &consullock.Options{Prefix: cfg.leasePrefix})
	if err != nil {
		return nil, err
	}
	client, err := cfg.Client(store)
	if err != nil {
		return nil, err
	}
	results, err := consullock.NewGuard(cfg.consul, &consullock.GuardOptions{Prefix: cfg.resultsPrefix})
	if err != nil {
		return nil, err
	}
	sdk, err := api.NewClient(cfg.consul)
	if err != nil {
		return nil, fmt.Errorf("make a client of Consul: %w", err)
	}
	job, err := cfg.Settlement(&payments{sdk.KV(), cfg.paymentsPrefix}, results)
	if err != nil {
		return nil, err
	}
	return lambdalease.New(client, cfg.Job, job.Handle, &lambdalease.Options{Singleton: cfg.Singleton()})
}
