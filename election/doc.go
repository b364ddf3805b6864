// Package election lets one of several processes lead: it runs a function while its process is the leader, in one process at a
// time, and hands over without waiting when the function returns.
//
//	e, err := election.New(client, "rebalancer", nil)
//	err = e.Run(ctx, func(ctx context.Context, l *lease.Lease) error {
//		return rebalance(ctx, l) // ctx ends before the term can; writes carry l.Token()
//	})
//
// # Not promised
//
// One leader at a time is not the same as one process acting at a time. A function that ignores its context, or a process
// that was paused in the middle of a write, acts on after its term, while the next leader acts too. Only a fence refuses it
// (package fence; send Lease.Token with every write). Options.Exit ends a process whose function has not returned when its term
// is over; that shortens the overlap and does not close it. Nor is it promised that there is a leader: after a crash there is none until the
// lease of the dead one has ended, and after a resignation until the next candidate has looked, about a second. Candidates
// are not queued, and who wins is chance.
//
// # A candidate's life
//
//	                    granted                lead returns nil
//	Run --> standing ------------> leading ---------------------> released ---> standing back --+
//	           ^                    |    |  lead fails                                          |
//	           |                    |    +----------------------> released ---> Run returns its error
//	           |                    |
//	           |                    | lease lost, or Run's ctx ended: lead's ctx ends
//	           |                    v
//	           |                 stopping ---- lead returns ----> released ---> ctx ended: Run returns nil
//	           |                    |                                |
//	           |                    | StopLimit                      | lost
//	           |                    v                                v
//	           |                 overrun: Run returns ErrOverrun   standing back --+
//	           +-------------------------------------------------------------------+
//
// Each term is one call of lead and its return: strictly a start and a stop in turn, on one goroutine per term. Every term has a
// context of its own and a higher token than all terms before it, of whichever candidate. A candidate that never leads is never called. The
// lock is released after lead has returned, never before, so that the next leader does not begin while this one cleans up.
//
// # When things fail
//
//	store out while standing      tried again, with pauses that grow to half a TTL
//	access denied, misconfigured  Run returns the error: waiting does not mend it
//	store out while leading       renewed until the deadline, then lost: lead's ctx ends with cause lease.ErrLost; stands again
//	leader killed or cut off      another leads once its lease has ended
//	lead returns nil              resigned: it stands back for Pause, so that another leads
//	lead returns an error         resigned, and Run returns it unchanged; if the lease was lost, or the error is lease.ErrStale,
//	                              it is told to the observer and the candidate stands again
//	lead panics                   resigned, then the panic ends the process
//	lead ignores its ctx          after StopLimit Run returns ErrOverrun. The lock is not released, because lead may still act;
//	                              it is no longer renewed and ends within a TTL, and is released if lead returns after all
//	lease is lost again and again terms of one candidate start a TTL apart at least, and Pause doubles up to MaxPause
//	client closed                 its leases are released; Run returns lease.ErrClosed, unless lead fails first
//	two processes with one name   each has an instance id of its own, so only one leads; Leader.Namesake tells
//
// # Requests
//
// A candidate costs what a waiter costs, the leader what a held lease costs. Leader makes one Inspect, and none in the leader.
// Changes makes one every Options.Look while its context lasts, and two for any number of subscribers; less where the candidate
// has just looked, none in the leader.
package election
