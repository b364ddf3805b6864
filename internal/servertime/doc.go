// Package servertime learns a service's clock from the Date headers of its answers, as an interval that holds the service's
// time. It never asks for the time itself and never trusts a wall clock of this host.
//
// # What is not promised
//
// The interval is not narrow at first: one answer leaves it 1 s plus a round trip wide, and it grows with age. It is not
// monotonic: an answer may move either bound either way, and a contradiction moves both. It says nothing about the time of a
// service whose front ends differ by more than Skew.
//
// # What is assumed
//
//   - A Date header is the service's time, cut to whole seconds, at some instant between sending the request and having its
//     answer. So at the send instant the service's time was before date + 1 s, and at the receive instant it was at least date.
//   - Between two successive answers, and from the newest answer to the instant asked about, at least one of the host's two
//     clocks (see lease.Reading) runs true within 200 ppm, or the two err on opposite sides. In other words: the true
//     elapsed time lies between the shorter time less 200 ppm and the longer time plus 200 ppm. The other clock may stand
//     still, as the monotonic clock does while a virtual machine is suspended or a serverless runtime is frozen, or be set
//     forward or back, as a wall clock is by an operator.
//   - The front ends of one service agree within Skew, and rounding a Date instead of cutting it counts as part of that.
//
// # What is proved
//
// With an exact service clock, its time lies in [earliest, latest] at every instant, also at instants before the newest answer:
// every answer proves a lower bound at its receive instant and an upper bound at its send instant, both are carried
// to the instant in question with the least or the greatest time that may have passed, and the interval is what all
// answers allow together. A clock that jumps only widens the interval until the next answer.
//
// With front ends that differ, the clocks of two clients satisfy earliest of one <= latest of the other + Skew. That is why
// whoever decides that another's lease is over must wait until earliest > expires + Skew, while the holder trusts it until
// latest >= expires. Against a front end that is up to Skew off from some reference, that reference lies within the interval
// widened by Skew on both sides.
//
// An empty intersection means that an assumption was broken: the service's clock jumped, both clocks of this host were wrong
// at once, or front ends differ. What the newest answer proves by itself then replaces everything older, and Observe says so.
// Even a broken assumption that goes unnoticed cannot do more harm than that answer's uncertainty (1 s plus the round trip),
// because the interval is always a part of what the newest answer proves.
package servertime
