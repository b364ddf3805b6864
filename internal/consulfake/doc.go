// Package consulfake is a Consul in this process, as far as consullock uses one: an http.Handler that speaks the HTTP API of
// sessions, keys and transactions and keeps time by the clock of its process, so that it works in virtual time inside a
// testing/synctest bubble, through emulator.Transport.
//
// It does what consul 1.14.11 was seen to do:
//
//	sessions    end at twice their TTL after the last renewal (Options.Expiry), or with their node; a lock-delay follows
//	lock-delay  refuses verb lock on the keys that the session had, whoever asks; 15 s where a session does not say
//	indexes     one that grows with every write; a key has that of its last change; a write that changes nothing moves none
//	lock        counts LockIndex up, which a deletion starts anew; the session that has the key may lock it again
//	reads       block on X-Consul-Index for up to their wait and a sixteenth of it
//	txn         all or nothing; a refused one tells the reasons of all its operations
//	ACLs        rules for keys and sessions; what may not be read is left out of trees without a word
//
// That both do the same is checked by this package's tests, with CLOUDLEASE_ENGINES=1 also on an agent.
//
// Not here: stale reads, several datacenters (another one has no path), health checks that change, namespaces.
package consulfake
