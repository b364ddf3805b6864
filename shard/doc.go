// Package shard shares the shards of a stream, a queue or a table out among workers: each shard has one owner at a time, which
// stores checkpoints; workers come, go and die; and the cost of keeping it all does not grow with the number of shards.
//
// # Not promised
//
// Records are processed at least once, not exactly once: after a crash, a forced hand-over or a lost lease the next owner begins
// at the last checkpoint. A worker that was paused may still be writing when its shard has an owner again; its checkpoints are
// refused, and a fence refuses its other writes (package fence: send Shard.Token and Shard.Holder with them). Shards count
// alike: balance is by number, not by traffic. Records of finished shards are not removed. Whoever deletes records while
// workers run, or unparks a shard whose owner has not yet seen that its record is gone, may have it processed twice.
//
// # A shard's life
//
//	listed by the source, its record made once
//	   |
//	   v           a parent without a stored end
//	 waiting <------------------------------------- every parent is finished
//	   |                                             |
//	   +---------------------------------------------+
//	   v
//	 free ---- claim: owner, token + 1, tries + 1 --------> running ---- Finish ----> finished, for good
//	   ^                                                      |  | checkpoint: tries = 0
//	   +---- asked to stop, function returned, or forced -----+  |
//	   ^                                                         |
//	   +---- orphaned: the owner's lease was lost and taken -----+
//	   |
//	   +---- tries = MaxTries, an operator, or a deleted record ----> parked ---- Unpark ----> free
//
// Each change is one compare-and-swap of the shard's record. The record names its owner as a worker lease and that lease's
// token. Only the owner changes an owned record, an operator's Park aside: nobody takes a shard from a living worker. A
// worker that has too many shards gives some back: it asks the function (Shard.Stopping), ends its context after Options.Grace, and
// frees the record when the function has returned, or without it after Options.StopLimit.
//
// # A worker's life
//
// Each worker holds one lease, renewed once per heartbeat, and stands in the group's one roster. It reads the roster every
// Options.Interval. A worker's entry leaves the roster only when its lease was released, or after another worker has taken it.
// The worker with the lowest number keeps the books: it reads all records each interval, makes those of new shards,
// and writes into the roster how many shards each worker is to run. Everybody else reads the records only when
// it lacks shards, or once in a while as an audit. Two that believe they keep the books do no harm.
//
//	join -- take a free worker lease --> enter the roster --> read the records, plan --> work, every interval:
//	   read the roster          not in it, or not read for a TTL less the margin: lost, join anew
//	   more shards than quota   hand the newest over
//	   fewer                    read the records, claim what is free: workers who look at once pick different ones
//	   look at the next worker  dead: take its lease, take it out of the roster, plan
//	leave -- hand all shards back --> leave the roster --> release the lease
//
// # When things fail
//
//	worker dies                  its lease ends after TTL; the next living worker takes it; its shards are claimed from their
//	                             last checkpoints, balanced within 3 TTL of the death
//	worker is paused             its contexts end when it wakes; its late writes are refused by the records' versions
//	lease lost                   contexts end at once, the shards are left; the worker joins anew under a higher token
//	claim's answer lost          the record is read again until it is known; an audit frees a record that names this worker
//	                             for a shard that it does not run
//	checkpoint's answer lost     likewise; ErrInDoubt only if the lease ends first
//	store out or throttled       retried; few writes at once, with growing pauses, so that the renewal gets through
//	function fails               called again after 1 s, 2 s, 4 s ...; parked after MaxTries failures without a checkpoint
//	function kills its process   each claim counts as a try until a checkpoint or an orderly hand-back; parked after MaxTries
//	                             (a quiet shard should store a checkpoint now and then, to be told from one that kills)
//	function does not stop       its context ends after Grace, its shard moves after StopLimit; Run reports ErrOverrun
//	function makes no progress   Options.Progress gives the shard up in order, and it counts as a try
//	source fails                 told (SourceFailed), listed again; what is known goes on
//	source lists nonsense        duplicate ids and cycles: the list is refused as a whole, and told; New refuses a static one
//	shard missing from a list    goes on: only Finish ends a shard
//	record deleted               a finished shard stays finished; a running one is lost to its owner, which gives the new
//	                             record its position; otherwise the shard is parked until UnparkAt says where to go on
//	roster deleted               all workers join anew; for TTL and margin nobody believes that an owner is gone
//	store restored from a copy   stop all workers, wait a TTL, Reseed: the records' tokens are old
//
// # Tokens
//
// A shard's token is a seed and a count of claims. The seed is the token of a grant of one lock that the whole group shares, taken
// when records are made; it lets the tokens grow over the deletion of records on every store, whatever its tokens are
// made of.
//
// # Cost
//
// With W workers, S shards, P requests for a scan of the records, interval I and heartbeat H (I and H: TTL/3 by default):
//
//	writes per second   W/H, and one for each checkpoint
//	reads per second    2W/I (roster, next worker) + (P+1)/I (the books) + at most (P+1)/I (audits, one worker after another)
//	a claim             1 write (the first of a shard 2); a scan before it, for all that this worker claims
//	a hand-over         1 write to give back, 1 to claim
//	a join              a scan, 3 writes, 6 reads; a leave 2 writes, 1 read; a death 3 writes, 2 reads, and a plan
//	a new shard         1 write, and 2 writes and a scan for all that are new at once
//
// P is about S x 250 bytes / 1 MB on DynamoDB, each of 256 read units (strongly consistent), and S/5000 on Azure. On DynamoDB a scan
// reads the whole table: give shards a table of their own. On Azure a roster holds about 200 workers.
package shard
