// Package consullock keeps leases in Consul: a session per client, one key per lock, and the raft index as the fencing token.
//
// # Not promised
//
// A session ends up to twice its TTL after its last renewal, and its locks then stay closed for the lock-delay: a dead holder's lock
// is free after the TTL and the lock-delay at the earliest, and by twice the TTL plus the lock-delay at the latest; a new leader
// starts all sessions' time anew and knows of no lock-delay. Waiters are not queued. A lock is per datacenter. An operator can
// take a lock from a living holder (Break, a deleted key, a destroyed session, a deregistered node): until the holder has
// seen it, within two seconds, two trust it, and only a fence stops the former one.
//
// # Keys
//
//	<prefix>locks/<name>/lock     locked by the session; its value names the newest attempt, and whether it was freed
//	<prefix>locks/<name>/grant    whose the newest grant is; written in the transaction that locks, and never otherwise
//	<prefix>locks/<name>/kept     the small value, the occurrences of a scheduled job, the last forced release
//	<prefix>floors/<name>/floor   what RaiseFloor adds to the index
//	<prefix>records/<key>         records (lease.Records)
//
// Names are escaped byte by byte. The library deletes no key.
//
// A lock is taken by one transaction: read what is there, lock the key, write the grant. All of it has one raft index, which is
// the token: it grows with every write of the cluster, also over deletions and restores, and stays readable as the index
// of the grant's key, which nobody else writes. The lock's own counter (LockIndex) begins anew with its key and is not used.
//
//	          lock + grant                     unlock, "freed"
//	(absent) --------------> HELD, by session ----------------> FREE
//	                           ^   |                             |
//	                           |   | session ended: Consul       |
//	                           |   v clears it, the grant stays  |
//	                           |  DEAD (closed for lock-delay)   |
//	                           +---------------------------------+ lock + grant
//
// # Trust
//
// One session carries all leases of one TTL, and one round renews them: a renewal of the session, and a transaction that checks
// that their keys have the index that they were locked with. Both must pass; a renewed session alone proves nothing of a
// key. Trust counts from the round's send. Leases whose renewal is due soon after a round share it.
//
// A session is re-entrant: Consul would lock a key again for the session that has it. So the store keeps a table of what it has
// or asks for, and refuses a second attempt itself.
//
// # Failures
//
//	answer of a lock lost             sent again: the same attempt writes the same, so the index stays; trusted from the first send
//	answer of a release lost          the key says that this attempt was freed: success
//	release did not arrive            no round frees its key before the TTL is over, if it leaves something behind
//	late or second unlock             conditioned on the index: it does not touch the session's next grant
//	lock lands after its caller left  the session's next round unlocks it; without another lease the session ends
//	lock arrives a second time        the index moves: the session's grant is lost, and its key stays closed until the holder knows
//	lease lost here, session alive    its key is unlocked by the next round, or taken over by the client's next attempt
//	keys or sessions alone fail       no round passes: lost at the deadline, and freed there at the session's end
//	key deleted or overwritten        the watch, or the next round, sees it; the next token is higher
//	session destroyed, check critical the watch sees it; all leases of the session are lost
//	server of the session removed     the same; the lock-delay (by default the TTL) keeps the locks closed meanwhile
//	no leader for a while             the renewal is tried again until the deadline
//	leader has not caught up          a session that it does not know is read once more, consistently, before it is given up for lost
//	data lost, or keys imported       the token would fall: ErrMisconfigured, until RaiseFloor has raised it
//	waiting, index goes back          the blocking query starts anew; if nothing blocks it is polled, twice a second at most
//
// # Requests
//
// Acquire 1 (the first one more, for the session; one more after half a TTL without a lease, to renew it), fail fast 1 (the holder's
// name one more, Options.NameHolder), renew 2 for up to 64 leases of one TTL together, save 1, release 1, inspect 1 (2 if there is
// nothing), break 2, floor 2. An occurrence is decided by 1 and granted by 2. A waiter: one read, then one blocking query a
// minute. A lease that is held for a second is watched by one read and one blocking query a minute; sixteen of one store are.
package consullock
