// Package fakelambda is one AWS Lambda execution environment for tests: a runtime API on a loopback port, and a real bootstrap
// binary that speaks to it, as a process of its own.
//
// What it is not: a conformance test of the runtime API. It has no response streaming to the caller, no size limits, no
// external extensions and no second try of a failed init. It takes one invocation at a time, as a real environment does; a
// function that runs more often at once is several Envs. Retries and queues are the caller's: send the same request id again.
//
// An invocation goes through these states; each arrow to "gone" makes the next invocation a cold start:
//
//	absent --start--> init --first poll--> running --answer and next poll--> idle, or frozen with Options.Freeze
//	          init    --exit, Options.InitTimeout---------------------> gone
//	          running --exit, panic, Options.Timeout, Kill, Term------> gone
//	          idle    --exit, Kill, Term, Close-----------------------> gone
//	idle, frozen      --Invoke--> running (warm)
//
// The process gets a small environment that is written down here, not the developer's: no credentials, profiles or proxies leak
// in. It is killed with the process that started it (on Linux), so that nothing outlives a test.
package fakelambda
