// Command torture lets real processes fight for a few locks under random faults, writes down what each of them believes, and
// looks for what must never be.
//
//	go run ./e2e/torture -store dynamodb -seed 1 -for 10m
//
// # What runs
//
// An engine (dynalite, Azurite, Consul), and worker processes that take locks, write what the locks guard, and give them back. Every
// worker reaches the engine through a fault proxy of its own, which delays requests and answers, drops answers after the
// effect, fails, throttles, swallows, resets, delivers twice, shifts the Date, and writes every request down. The workers are
// stopped, killed and terminated; their clocks are set wrong; the engine is killed and started again on what it had stored.
//
// # What is checked
//
// Package check says it: never two holders that trust one lock, tokens that grow, a guarded register that accepts no stale
// write, nothing left behind, and a dead holder's lock free within its bound. A kind of fault that never hit anything fails the
// campaign as well: it would prove nothing. On a violation the history stays, with a picture of it and the command that
// repeats it. The same seed gives the same faults in the same order; what they hit depends on the machine.
//
// The proxies keep, in memory, what is secret or proves a grant: lease ids, sessions, attempts, nonces, signatures, credentials.
// None of it may be in what a worker logs, in an error, or in what is printed; what the library logs at debug level is looked at
// too. A kind of secret that never came by fails the campaign.
//
// # What is not injected
//
// Nothing that the guarantees exclude, but in scene beyond: Dates differ by a second at most, clocks run wrong by 150 ppm at most, and a monotonic
// clock does not stand still within a lease whose wall clock is set back. Stale reads are possible for reads that accept them:
// the proxy counts those, and there are none.
//
// # Scenes
//
//	workers  the above
//	beyond   the same with clocks and Dates that are wrong beyond what the guarantees assume: tokens and the fence must hold
//	restore  the engine is set back to an older copy, by the documented procedure and under its clients' feet
//	lambda   occurrences of a job are delivered to several Lambda environments at once, which are killed and frozen: every
//	         result must be there, written once by one run, unless a fault made a second run necessary
//
// A history that was kept is checked again with -check and its directory.
//
// # Reading order
//
//	main.go      the command line
//	campaign.go  what runs, from the start to the check
//	faults.go    what is done to it
//	process.go   one worker's processes
//	report.go    the figures; picture.go draws a violation
//	restore.go, lambda.go, deliver.go  the scenes of these names
//	worker/      what a worker does and writes down
//	proxy/       the fault proxy
//	secret/      what no log may show
//	history/     the events
//	check/       the checker
//	service/     one adapter for each store
package main
