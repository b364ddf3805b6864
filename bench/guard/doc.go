// Package guard keeps what operations cost from growing unnoticed: its test compares the requests that each operation sends, one by
// one, and its allocations with those in guard.json. It measures no times, which say nothing on a machine that does other work.
//
// `make bench-guard` runs it; `make bench-guard UPDATE=1` writes the file anew, for a change that is meant.
package guard
