package election_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/cloudlease/cloudlease/election"
	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

// One candidate leads until it is told to stop. What it writes carries its term's token, so that a former leader that was
// paused cannot overwrite it.
func Example() {
	store := memlease.New()
	plans := store.Guard()
	client, err := lease.New(store, &lease.Options{Holder: "host-1", Observer: lease.ObserverFunc(func(lease.Event) {})})
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := election.New(client, "planner", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	err = e.Run(ctx, func(ctx context.Context, l *lease.Lease) error {
		fmt.Println("leads:", e.Status().State)
		stop() // SIGTERM, say
		<-ctx.Done()
		return fence.Put(context.WithoutCancel(ctx), plans, l, "plan", []byte("handed over"))
	})
	fmt.Println("ended:", err)
	fmt.Println(client.Close(context.Background()))
	// Output:
	// leads: leading
	// ended: <nil>
	// <nil>
}

// A process that stands for nothing sees who leads, and tells its health.
func ExampleElection_Leader() {
	ctx := context.Background()
	client, err := lease.New(memlease.New(), &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
	if err != nil {
		fmt.Println(err)
		return
	}
	leader, err := client.TryAcquire(ctx, "planner") // any holder of the lock is the leader
	if err != nil {
		fmt.Println(err)
		return
	}
	observer, err := election.New(client, "planner", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	who, err := observer.Leader(ctx)
	fmt.Println(who.Elected, who.Self, who.Holder == leader.Holder(), err)
	answer := httptest.NewRecorder()
	observer.Health().ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/healthz", nil))
	fmt.Println(answer.Code, observer.Status().State)
	fmt.Println(client.Close(ctx))
	// Output:
	// true false true <nil>
	// 200 observing
	// <nil>
}
