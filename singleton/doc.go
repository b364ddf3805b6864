// Package singleton runs a job once per scheduled occurrence, although schedulers deliver an occurrence more than once,
// early, late and to several hosts.
//
// # Not promised
//
// Nothing here makes a job run exactly once. A run whose process was paused, cut off or killed may have done any part of its
// work, and the next run may begin while a paused one still stands before a write: only a fence refuses that write
// (package fence; send Lease.Token with it). A run that did its work but whose release was never stored is not
// recorded: AtLeastOnce runs it again, AtMostOnce reports it in doubt (Result.Release tells). Deliveries are not queued.
// Failed runs are not retried by this package: the platform delivers again.
//
// # Occurrences
//
// A run is named by the job and the scheduled instant in whole UTC seconds, whoever delivers it and whenever. It is never
// derived from a clock or a request id: ParseOccurrence and LocalTime read it from text. A job is one lock (its name is
// the job's name), so two occurrences of it never overlap. Beside the lock the store keeps two ordered marks, the newest
// occurrence that was started and the newest that was finished. One request takes the lock and compares the marks:
//
//	delivery -- acquire if finished < occurrence (AtMostOnce: started < occurrence), and set started
//	   |-- refused by the marks ------> already-done, stale, paused, in-doubt, failed-before
//	   |-- held by another -----------> running (this occurrence), busy (another one)
//	   |-- no answer -----------------> not-run, or the body unguarded
//	   `-- granted --> body --> release, set finished and the ledger in the same write
//	                    |-- returns nil ---------------> ran
//	                    |-- fails or panics -----------> failed; finished stays
//	                    |-- fails with lease.ErrStale -> refused; finished stays
//	                    `-- lease over before its end -> lost
//
// A killed process releases nothing: its lock ends by itself, with started at its occurrence and finished before it.
//
//	outcome        error                    to a platform   meaning
//	ran            nil                      success         the body returned nil and nobody else held the lock
//	already-done   nil                      success         this occurrence was finished before
//	stale          nil                      success         a newer occurrence was finished (AtMostOnce: started)
//	busy           nil *                    success         another occurrence of the job runs
//	paused         nil                      success         an operator has paused the job; the occurrence is not consumed
//	running        ErrRunning               retry           this occurrence runs elsewhere, or its runner died just now
//	failed         the body's, unchanged    retry           AtLeastOnce: the next delivery runs it again
//	failed-before  ErrFailedBefore          give up         AtMostOnce: it failed once and is not run again
//	in-doubt       lease.ErrInDoubt         give up         AtMostOnce: it was started and has no recorded end; see Clear
//	refused        the body's               retry           a fence refused a write: another has taken over
//	lost           lease.ErrLost            retry           the lease ended in mid-run
//	not-run        the store's              retry           the body was not started
//
// running is an error, unlike busy, because a success would end the platform's retries: if the runner has died, the
// occurrence would be lost. With EveryOccurrence (*) busy is an error as well, ErrBusy, for the same reason.
//
// # How long a mark lasts
//
// The marks have no end: an occurrence that is finished stays finished, and every older one is stale. With EveryOccurrence
// each occurrence has a record of its own for Options.Keep (48 h unless told otherwise, 24 h at least, which is how
// long schedulers retry); occurrences older than that are stale.
package singleton
