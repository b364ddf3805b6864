// Package lease holds locks that end by themselves, with fencing tokens, on a lock service that somebody else runs.
//
// # Not promised
//
// A lease does not stop a process that was paused: it wakes after its lease has ended and goes on with what it was doing.
// Every lease therefore carries a Token that is higher than all before it, to be sent with every write; storage that refuses
// a lower one (package fence) stops the late writer. Nor are waiters queued, and a lock has one holder, not n.
//
// # Use
//
//	client, err := lease.New(store, nil)
//	err = client.Do(ctx, "billing", func(ctx context.Context, l *lease.Lease) error {
//		return results.Put(ctx, "2026-03", sum, l.Token(), l.Holder())
//	})
//
// A Store is one lock service: packages dynamolock and memlease. Its contract is the test suite in package leasetest.
//
// # A lease's life
//
//	                 renewed, about every TTL/3
//	                      +------+
//	                      v      |
//	TryAcquire ------> valid ----+---- Release ----------------> released (ErrReleased)
//	   |                  |
//	   | held, failed     +---- deadline reached, or
//	   v                        the store says it is gone -----> lost (ErrLost), for ever
//	 error
//
// The deadline counts from before the last good request was sent, never from its answer: the store may have started the
// lease's time as early as that. Both clocks of the host are read, and the one by which more time has passed counts: the
// monotonic clock can stand still in a suspended machine. At the deadline the lease's contexts end with cause ErrLost, with or
// without a network, while a renewal hangs or not.
//
// # When things fail
//
//	renewal fails, answer lost       tried again until the deadline; Jeopardy is told when a third is left
//	renewal says the lease is gone   lost at once
//	late success of a renewal        ignored: a lost lease never becomes valid again
//	acquire's answer lost            sent again as the same attempt, at most three times; the store knows it again
//	acquire's context ends           ErrInDoubt; what was granted is given back in the background
//	grant arrives too late           given back, not handed out
//	release's answer lost            sent again, at most three times; then the lock ends by itself
//	release with a renewal under way the renewal's end is awaited, and a late one finds no holder
//	holder is stuck                  Options.MaxHold and Options.Progress end the renewals
//
// # Errors
//
// Every error matches one of the classes ErrHeld, ErrPassed, ErrLost, ErrReleased, ErrStale, ErrConflict, ErrInvalid,
// ErrDenied, ErrMisconfigured, ErrUnavailable, ErrInDoubt and ErrClosed, says on what it happened and what to do next, and
// keeps the service's own error reachable with errors.As.
package lease
