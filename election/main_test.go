package election_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

// panics names the environment variable that makes the test binary lead, panic and tell its events, for a test that needs a
// process to end.
const panics = "ELECTION_TEST_PANIC"

func TestMain(m *testing.M) {
	if os.Getenv(panics) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	c, err := lease.New(memlease.New(), &lease.Options{Observer: lease.ObserverFunc(func(e lease.Event) { fmt.Println(e.Kind) })})
	if err != nil {
		panic(err)
	}
	e, err := election.New(c, office, nil)
	if err != nil {
		panic(err)
	}
	_ = e.Run(context.Background(), func(context.Context, *lease.Lease) error { panic("the rebalancer is broken") })
	select {} // the panic ends the process
}
