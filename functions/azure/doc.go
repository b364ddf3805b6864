// Command azure is a custom handler for Azure Functions that settles the payments of a day once per occurrence of its timer, with
// its lock, its payments and its results in Azure Blob Storage. host.json and settlement/function.json beside it are the
// function app.
//
// # Not promised
//
// The host does not catch up. An app that was down over several occurrences is invoked for the first of them only, and once the
// retries of function.json have failed the occurrence is over: alert on failed invocations. The host ends this process without a
// signal when it restarts, so that nothing is released then; the run that follows starts when the lease has ended.
//
// # Occurrences
//
// An invocation names its scheduled instant, or it is refused; neither the time of the call nor the metadata's UtcNow ever stands
// in for it. It is the ScheduleStatus.Next of the timer's data: what the host's monitor had stored as the next occurrence before
// this invocation. That is the same text for a timer that fires early, for one that is past due after a restart, for every
// retry, and for a second host or slot. So useMonitor is on and runOnStartup off, and the schedule is one of a minute or more.
// A manual invocation carries the coming occurrence, which is refused unless it is less than a minute away.
//
// Next has an offset, or it is a time in the zone of WEBSITE_TIME_ZONE, else TZ, else UTC. An IANA zone is needed for the latter
// only. A local time that the clocks show twice or skip is refused.
//
// # What the host is answered
//
// The host knows success and failure: any status but 2xx is a failure, and is delivered again by the retry policy of
// function.json. Of a failure it shows the status and nothing of the body, so that the statuses differ; the reason is in the logs,
// as a line of JSON on stderr.
//
//	what happened                                   status  ReturnValue      delivered again
//	ran                                             200     the report       no
//	already-done, stale, busy (another occurrence)  200     the outcome      no
//	paused by an operator                           200     the outcome      no
//	running: this occurrence runs elsewhere         409     the outcome      yes: its runner may have died
//	failed, refused by a fence, lost, out of time   500     the outcome      yes
//	the process was asked to end                    500     the outcome      yes, by the host or after its restart
//	in-doubt, failed-before (at-most-once)          412     the outcome      yes, in vain: an operator has to decide
//	not-run: the storage did not answer, or denies  503     the outcome      yes
//	no occurrence, or one of the future             400     the outcome      yes, in vain
//	more than 256 KiB                               413     the outcome      yes, in vain
//	another function's name                         404     -                yes, in vain: rename the folder
//	another method than POST                        405     -                the host does not send one
//
// # Time
//
// The host gives up after the functionTimeout of host.json, or of the setting AzureFunctionsJobHost__functionTimeout, and then
// restarts this process. A run's context ends a tenth of it earlier, at least 1 s and at most 10 s, so that the release and the
// answer still fit. A delivery that finds its own occurrence running waits for up to half of what is left before that. The
// context also ends when the host hangs up, and on SIGTERM.
package main
