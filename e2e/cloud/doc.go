// Command cloud deploys template.yaml to a stand-in of AWS, lets a schedule drive the settlement, and checks what came of it.
//
//	make up && make e2e-cloud OCCURRENCES=3 && make down
//
// Each occurrence is a day of the past, so that each has a result of its own, and is delivered five times at once: by three schedules
// that are due at the same instant, made after the template's own, and by two asynchronous invocations. In the middle one the
// function's process is killed while it holds the lock. The last occurrence is the template's own schedule's, every minute. In between
// settings are wrong, tables are missing and a lock service is out of reach.
//
// It fails unless
//
//   - every occurrence has one result, which is right and written in the name of the run that the log says finished it
//   - tokens grow from occurrence to occurrence
//   - the killed run's occurrence was finished by another delivery with a higher token
//   - the lock is free in the end, and marked with the last occurrence
//   - every failure is in the log with its class, and has written nothing
//   - deleting the stack leaves its tables, and nothing else
//
// What the stand-in cannot do is in docs/local-cloud.md, and so is what plays it instead.
package main
