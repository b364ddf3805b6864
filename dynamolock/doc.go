// Package dynamolock keeps leases in a DynamoDB table: one item per lock, one conditional write per operation, and a fencing
// token that only grows.
//
// # Not promised
//
// Two holders never trust one lock at the same time as long as the clocks of DynamoDB's front ends agree within a second,
// the table is in one region, and nobody deletes its items or restores it from a backup while leases are held. When that is
// broken, a fence still refuses the stale writer; without a fence nothing does. Waiters are not queued.
//
// # The item
//
//	name     S  hash key
//	version  N  the fencing token
//	holder   S  holder#attempt, constant during a hold; empty: free
//	nonce    S  new on every write
//	expires  N  end of the lease in ms, on the service's clock
//	ttl      N  ms
//	since    N  when it was granted, in ms, on the service's clock
//	value    B  the small value kept with the lock
//	started, finished, running  N  occurrences of a scheduled job, unix seconds
//
// The item stays after a release, so that the version is remembered:
//
//	            create: no item                     release
//	(absent) ---------------------> HELD by #1 ------------------> FREE
//	                                 |     ^                        |
//	                expires + 1 s    |     | take: nonce as seen    | take: version < token
//	                passes unrenewed v     | version = token        v version = token
//	                                DEAD --+----------------------> HELD by #2
//
// # Time
//
// No host's wall clock is written to the table or compared with anything in it. The HTTP Date of every answer tells the
// service's clock to a second; a store keeps an interval [earliest, latest] for it (package servertime). Leases are written
// with earliest and trusted until latest reaches their end: an uncertain clock makes a lease shorter, never longer. A lease
// is dead once earliest is a second past its end, a second being what front ends may differ by. A store that does not know
// the time to 3 s, such as one that has just started, reads the item first and learns it.
//
// # Tokens
//
// A token is the service's time in ms, or the last token plus one where that is higher. It grows by the condition of the
// write, and lies above all older ones by the clock even when the item was deleted or the table was restored: a new item
// begins 5 s ahead. Two residues, both within the clock's uncertainty of about a second: an item that is made, deleted and made
// again, and a table that is restored to a copy that young. A fence then sees an equal or lower token and refuses the newer
// holder: nothing is overwritten.
//
// # Failures
//
//	request lost, throttled         sent again by package lease: the same attempt, so never two grants
//	answer of an acquire lost       the retry finds its own attempt in the item: success, trusted from the first send
//	answer of a renewal lost        the next renewal goes by token and holder and passes
//	answer of a release lost        the retry finds its own attempt in the nonce: success
//	renewal arrives after a release finds no holder, changes nothing
//	old renewal arrives late        an end never moves back: refused
//	holder paused, lock taken       its renewals and releases are refused by version and holder; its writes by a fence
//	item deleted while held         the holder loses the lease at its next renewal; the next token is higher
//	item not of this library        ErrMisconfigured naming the attribute; nothing is written
//
// # Requests
//
// Acquire 1 write (first ever 2; dead and not seen before 2; without the service's time 1 read more), fail fast 1, renew 1,
// save 1, release 1, a waiter's look 1 read. The permissions needed are dynamodb:GetItem and dynamodb:UpdateItem, and
// dynamodb:Scan for listing.
package dynamolock
