// Package lambdalease makes a scheduled AWS Lambda function run once per occurrence of its schedule, although the platform
// delivers at least once:
//
//	lambda.Start(lambdalease.Wrap(client, "settlement", handle))
//
// The handler is any function that aws-lambda-go takes. It is called for the occurrence that the event names, under the
// job's lock; inside, lease.FromContext gives the lease, whose token goes with every write to fenced storage, and
// singleton.OccurrenceFromContext the scheduled instant. Package singleton says what each delivery comes to; skipped
// ones (already-done, stale, busy, paused) succeed with the zero value of the handler's result, so that the platform does not
// retry them, and all others return their error, so that it does.
//
// # Not promised
//
// Lambda kills a function at its time-out, and when it takes down an environment, without asking. Nothing is released then:
// the job's next run starts once the lease has ended. A handler that ignores its context until after the time-out has
// nothing released behind its back. What an interrupted handler had begun, only a fence can guard (package fence).
//
// # Time
//
//	|<- waiting for the own occurrence's run ->|<----- handler ----->|<- Reserve ->|
//	invoke                          half of the time          context ends      time-out
//
// The handler's context ends Options.Reserve before the invocation's deadline, so that its return, the release and the
// answer still fit; the function's time-out has to be longer than Reserve. On SIGTERM it ends at once. Lambda sends that
// only to functions started with lambda.WithEnableSIGTERM, and leaves about 300 ms. The release follows the handler's
// return and is answered before Invoke returns: nothing is left running while the environment is frozen.
//
// # Occurrences
//
// An event carries its scheduled instant, or it is refused; the time of the call never stands in for it. See Occurrence.
package lambdalease
