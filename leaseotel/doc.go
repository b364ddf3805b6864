// Package leaseotel tells OpenTelemetry what happens to leases: metrics through an observer, spans through wrappers.
//
//	tel, err := leaseotel.New(nil) // the global providers
//	client, err := lease.New(store, &lease.Options{Observer: tel})
//	err = client.Do(ctx, "billing", tel.Body(settle))
//	results = tel.Guard(results)
//
// Telemetry replaces the client's default observer, which logs; Options.Next keeps one beside it.
//
// # Not promised
//
// Metrics come after the fact and may be lost with the process: they are for people and alarms, never for a decision about a
// lease. A stale write is counted only where it goes through Guard or Stale. What a paused process has missed, such as the
// moment of a loss, is told when it wakes.
//
// # Metrics
//
//	name                             kind       unit       attributes                     what
//	cloudlease.acquire.attempts      counter    {attempt}  outcome, error.type            attempts: granted, held by another, failed
//	cloudlease.acquire.duration      histogram  s                                         until a grant, waiting included
//	cloudlease.acquire.tries         histogram  {attempt}                                 attempts that a grant took
//	cloudlease.lease.active          up-down    {lease}                                   leases held now
//	cloudlease.lease.hold.duration   histogram  s          end                            from grant to release, release failed, or lost
//	cloudlease.lease.jeopardies      counter    {lease}                                   a third of the lease left and no renewal
//	cloudlease.lease.losses          counter    {lease}    loss.kind                      lost leases: gone, unrenewed, paused, ...
//	cloudlease.lease.namesakes       counter    {holder}                                  another instance of our own name has the lock
//	cloudlease.renewal.duration      histogram  s          error.type                     renewals, also those that failed
//	cloudlease.failures              counter    {request}  operation, error.type          failed acquire, renew, release, give_back
//	cloudlease.fence.writes          counter    {write}    outcome, error.type            guarded writes: stored, stale, failed
//
// The attributes of this module begin with cloudlease, such as cloudlease.outcome; error.type is the class of the error, such as
// unavailable, and _OTHER for an error of none. Every attribute has a small fixed set of values. The lock's name is an attribute
// (cloudlease.lock.name) only if Options.Lock asks for it, because names can be many. Holders and tokens are never attributes of
// a metric; spans have them.
//
// # Dependencies
//
// The OpenTelemetry API alone (otel, otel/metric, otel/trace), not its SDK. No other package of this module imports this one.
package leaseotel
