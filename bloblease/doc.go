// Package bloblease keeps leases in an Azure Blob Storage container: one small blob per lock, whose lease the service ends by
// itself, and a fencing token that only grows.
//
// # Not promised
//
// Azure documents that a lease may stay up to a minute longer than its duration; a dead holder's lock is free that much later,
// never earlier. Leases last 15 to 60 s. Waiters are not queued and the service does not wake them. After a failover of the
// account to a copy that has lost its newest writes, two holders may trust one lock for up to one TTL; the next token is higher
// all the same, and the fence decides. A break of a living holder's lock does the same, on an operator's word.
//
// # The blob
//
// A page blob of 512 bytes. Its sequence number is the token; its metadata are a note about the newest claim:
//
//	token     the claim that the note is about          value     the small value kept with the lock
//	holder    whose claim it is                         freed     the lease that its holder has given up
//	since     when, in ms on the service's clock        broken... the last forced release
//	started, finished, running, before                  occurrences of a scheduled job, unix seconds
//
// Texts and values are in base64url. The library never deletes a blob and never asks for an endless lease. With
// Options.MetadataTokens it is an empty block blob, and the note's token is the lock's.
//
// A lock is taken in two steps. The claim writes the next token and the note, on the condition (If-Match) that the blob is as
// it was seen, and unleased. It gives nobody the lock. Then the lease is asked for, on the condition that the blob is as the
// claim left it. So whoever has the lease is whom the note names, nobody else's token lies between, and of two claims the later
// one wins, and the lease of the earlier one is refused:
//
//	           create: no blob                                  release, or freed by its holder's last write
//	(absent) ------------------> claimed #1 --lease--> HELD #1 ------------------------------------------> FREE
//	                                ^  |                  |                                                 |
//	          claimed over, unleased|  |                  | not renewed: the service ends the lease         |
//	                                |  v                  v                                                 |
//	                             claimed #2 <----------- DEAD                                               |
//	                                ^---------------------------------------------------------------------- /
//
// The lease's id is a function of the attempt and the token. A retry asks for the same lease, and the service refuses it to
// anybody with another token.
//
// The claim comes first because an operation on a lease leaves no trace: neither the ETag nor anything else that can be read tells
// a lease that was just taken from its predecessor's. With the lease first, the lock would show its former holder and token until
// the number is written, or for a whole TTL if the new holder dies before; a break of what was inspected could hit what came after;
// and a retry could not tell its own number from another's. It would save nothing: the value and the marks that are kept with the
// lock have to be read before the note is replaced, unless they are known.
//
// For the same reason what was seen of a claim may not be true any more although the ETag is the same. That only matters
// for the marks of an occurrence: whether a claim started it depends on whether it was leased. Such a claim is
// overwritten within MinTTL of the look at it, which is too soon for a lease to have ended, or counts as started.
//
// # Tokens
//
// A token is the service's time in ms, or the last token plus one where that is higher; a new blob begins 2 s ahead. It grows
// by the condition of the claim, and lies above all older ones by the clock, which every answer's Date header tells, also
// when the blob was deleted or an older copy came back. Claims that come to nothing leave gaps.
//
// # Failures
//
//	request lost, throttled           sent again by package lease: the same attempt, so never two grants
//	answer of a claim lost            the retry claims again, with a higher token
//	answer of a lease lost            the retry asks for the same lease: the same grant, trusted from the first send
//	answer of a renewal lost          the next renewal finds the same lease
//	answer of a release lost          the retry finds the lease gone and the note unchanged, or freed: success
//	answer of a creation lost         the retry finds the blob and claims it, with a higher token
//	answer of a break lost            the retry finds the lease broken and nobody's reason, and keeps its own
//	claim arrives late                refused if anybody has claimed or written since; otherwise a number that nobody has
//	renewal arrives after a release   the service knows no such lease
//	lease asked for arrives too late  refused if anybody has claimed since; otherwise it ends by itself (a ghost)
//	acquire given up in mid-flight    its lease is released, or the blob changed so that none can come
//	late renewal by the holder        not sent past its own deadline; an answer with another lease's id is a loss
//	holder paused, lock taken         its lease id is refused; its writes by Native or a Guard
//	release that leaves something     one write frees the lock and leaves it; the lease's end is only cleaning up
//	release after the lease's end     leaves what it has to leave if nobody has claimed the lock since
//	holder killed between the two     whoever comes next ends the freed lease
//	blob or container deleted         the holder loses the lease at its next renewal and makes nothing anew
//	blob of another kind at the name  ErrMisconfigured; nothing is written
//
// # Requests
//
// Acquire 3 (number, note, lease) on a lock that this store has seen free as it is, 4 if it has to be read first, 3 for the
// first ever (read, create, lease); one less with NoHolder (no note, unless for an occurrence) or MetadataTokens (no number). Fail
// fast 1, renew 1, save 1 (2 when less than half of the trust is left), release 1 (2 if it leaves something), inspect 1, break 3.
// The role Storage Blob Data Contributor on the container suffices; docs/azure.md lists the single actions.
package bloblease
