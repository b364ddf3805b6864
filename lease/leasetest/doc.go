// Package leasetest is the executable specification of lease.Store and fence.Guard, and the tools it is made of: faults of
// the network, clocks of hosts that are wrong, histories of what holders believed.
//
// A store's test is a harness and one call:
//
//	type backend struct{ s *myservice.Fake }
//
//	func (b backend) Store(t *testing.T, h leasetest.Host) lease.Store {
//		wire := h.Faults.RoundTripper(b.s.Transport(), failureResponse)
//		return mystore.New(b.s.URL, &mystore.Options{HTTP: &http.Client{Transport: wire}, Clock: h.Clock})
//	}
//	func (b backend) Delete(t *testing.T, name string) { b.s.Delete(name) }
//
//	func TestStore(t *testing.T) {
//		leasetest.TestStore(t, leasetest.Harness{Virtual: true, New: func(t *testing.T) leasetest.Backend {
//			return backend{myservice.NewFake()}
//		}})
//	}
//
// With Virtual every subtest runs in a testing/synctest bubble, so that hours take milliseconds; the service must then be in
// this process. Without it the same subtests run in real time against a real service, with fewer rounds; those that take
// hours or set hosts' clocks against the service's are left out.
//
// Subtests that stem from a known failure of other lock clients carry its number, such as DY01: run those of one failure
// with go test -run 'TestStore/DY01'.
//
// Every subtest also fails if a token did not grow, if two holders trusted one lock at one instant, if an error had no class,
// if an error or a log entry showed an attempt or a proof, if a fault that the subtest set never hit a request, and, in
// a bubble, if a goroutine was left behind.
package leasetest
