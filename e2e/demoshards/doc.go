// Command demoshards shows workers that share the shards of a stream, on this machine alone. It needs Go and nothing else.
//
//	go run ./e2e/demoshards              writes the picture docs/demo-shards.svg; exit code 0 if all that was promised held
//
// It builds the Lambda function functions/shardworker, starts a DynamoDB-compatible store in memory, and invokes the function round
// after round in three execution environments at once, as a schedule with three copies would: each invocation leases a few
// shards of a generated stream, works until shortly before its deadline, stores checkpoints and hands back. One process
// is killed in mid-run. What is reported at the end was seen at the store's door: every write that reached it.
//
// # Reading order
//
//	main.go     the command line, and the rounds
//	door.go     the store's door, where writes are read
//	check.go    what was promised, checked against what was seen
//	picture.go  who owned what when, as a picture
package main
