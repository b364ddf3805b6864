// Package gocronlease lets go-co-op/gocron schedulers on several machines share their jobs: a Locker per run, or an Elector
// for the whole schedule.
//
// Not promised: gocron tells a Locker the job's name and nothing of its schedule. A Locker alone therefore only keeps two runs
// from overlapping; a machine whose clock is behind runs a short job once more after the first has released it. Give it
// a Period, or an Occurrence of your own, and each occurrence runs once. And no lock stops a paused process: take the token from
// Locker.Lease and send it with what the job writes.
package gocronlease
