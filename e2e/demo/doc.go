// Command demo shows in half a minute what a lease with fencing tokens is good for, on this machine alone. It needs Go and
// nothing else: no account, no network, no container.
//
//	go run ./e2e/demo              all goes well; writes the picture docs/demo.svg; exit code 0
//	go run ./e2e/demo -fence=off   the same without the fence: a stale write gets through; exit code 1
//
// It builds the Lambda function functions/dynamolock, starts a DynamoDB-compatible store in memory and five processes of the
// function behind Lambda's runtime API, and lets three things happen to a daily job: it is delivered too often, it is
// killed in mid-run, and it is stopped in front of its write until another has taken over. What is reported at the end is
// read back from the store: its tables, and the record of the writes that reached it.
//
// # Reading order
//
//	main.go      the command line and the last line
//	world.go     what runs: the store, its tables, the processes
//	process.go   one process, and deliveries to it
//	scenes.go    what is done to them
//	recorder.go  the door of the store, where every write is written down
//	readback.go  what the record and the tables say
//	report.go    the tables at the end, and the checks
//	timeline.go  the record as a picture; picture.go and svg.go draw it
package main
