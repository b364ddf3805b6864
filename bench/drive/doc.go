// Package drive makes lock libraries do the same work: each is driven by lines on the standard input of a process of its own, so
// that libraries in other languages are driven alike (java/, node/).
//
//	ready cirello.io/dynamolock/v2 v2.1.0             the driver, when it can be asked
//	<id> <operation> <client> <lock> [<argument>]     a line that asks
//	<id> ok|held|no|error <nanoseconds> [text]        its answer, in whatever order
//
// A client is what a process of its own would have; it is made when it is first named. Operations of one client and lock come one
// after the other, all others at once. The operations:
//
//	open      makes the client
//	acquire   waits for the lock; the library keeps it alive by itself
//	try       asks for it once, waiting for nobody, as far as the library can: "held" if another has it
//	renew     renews it once
//	release   gives it back
//	deliver   runs an empty job for the occurrence given as unix seconds: "ok" if it ran, "held" if not
//
// "no" says that the library has no such thing.
package drive
